"""How the embedded weights are made: `python -m compression.training --data ../shared/eval`."""
