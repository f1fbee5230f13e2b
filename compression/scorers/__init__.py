"""Scorers, which give every unit a score; the neural ones are in `compression.neural`."""
