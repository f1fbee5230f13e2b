"""Compression inside chat: the long parts of a prompt are compressed on their way to the engine."""
