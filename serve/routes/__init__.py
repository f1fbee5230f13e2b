"""One module a group of routes; each parses, calls and responds."""
