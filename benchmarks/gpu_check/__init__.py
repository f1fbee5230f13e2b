"""Check of networks, engines and the service on a GPU, in one command: `scripts/gpu-check`. A part is a process with a
limit."""
