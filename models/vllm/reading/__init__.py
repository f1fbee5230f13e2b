"""Reads calls and thoughts in what an engine generates, the same in one piece and in a stream."""
