"""The commands that show or ask a running server: its models, how it does, and a chat with it."""
