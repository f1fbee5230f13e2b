"""Workspaces, projects and keys, and the log of who changed them."""
