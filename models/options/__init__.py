"""A chat request's options and messages as an engine may take them, and what is refused."""
