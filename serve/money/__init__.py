"""The money of the running server: what a request can cost at most, how it is settled, and the background work."""
