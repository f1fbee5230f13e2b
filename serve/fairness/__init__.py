"""Places on engines, shared fairly between projects: who is next, how much one may hold, and what is paused; turns of
models that share GPUs."""
