"""The commands that copy what a server keeps to another place, and back."""
