"""Tickets and traces that are read by eye: what is left of each, by two versions of pith."""
