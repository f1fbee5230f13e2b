"""What networks, engines and the service do on a GPU, in one command: `scripts/gpu-check`. A part is a process with a
limit."""
