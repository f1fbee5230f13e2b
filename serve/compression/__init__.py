"""Compression over HTTP, piece by piece: what is asked, and what is answered."""
