"""Whether a configuration fits on given machines: GPUs by placement, memory by estimate."""
