"""Compression in processes of its own, so that work that was given up can be killed at any point."""
