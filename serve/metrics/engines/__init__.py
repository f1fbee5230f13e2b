"""What the replica of a chat model counts, vLLM's own figures among it: numbers in a file that is mapped into memory,
so that an addition is all that a token costs.
"""
