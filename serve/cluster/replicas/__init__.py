"""The way to a replica and its private port: which one takes a request, and how both sides speak."""
