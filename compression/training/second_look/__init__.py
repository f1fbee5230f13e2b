"""How the networks of the second look are trained: `python -m compression.training.second_look`."""
