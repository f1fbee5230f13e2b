"""The `pith` command, a module for each group of verbs."""
