"""Capacity of given machines for a configuration: GPUs by placement, memory by estimate."""
