"""What compression's networks do on a GPU, in one command: `scripts/gpu-check`. Each part has a process and a limit."""
