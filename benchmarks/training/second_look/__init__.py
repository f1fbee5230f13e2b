"""Training of the second look's networks: `python -m benchmarks.training.second_look`."""
