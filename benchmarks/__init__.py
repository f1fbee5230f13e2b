"""Benchmarks of a running server from outside, as its users meet it; and the training of the weights that it serves."""
