"""Training of the embedded chat models: `python -m benchmarks.training.chat_models`."""
