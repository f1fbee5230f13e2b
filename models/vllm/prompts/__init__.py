"""What vLLM is given of a request: its fields, what makes a prompt of it, and prompts that are only counted."""
