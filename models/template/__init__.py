"""What a chat template can do to the size of a prompt."""
