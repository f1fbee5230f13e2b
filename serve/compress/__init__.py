"""Compressions, from a request's body to the receipt: for a project, for the demo, in batches."""
