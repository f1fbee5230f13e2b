"""How the embedded model's weights were made: `python -m compression.training --data ../shared/eval --out compression/weights`."""
