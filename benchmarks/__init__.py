"""Measures a running server from outside, as its users meet it; imports nothing of the server's code."""
