"""Texts that a project asked to have kept for a while: written in sealed chunks, read, and deleted in small steps."""
