"""Measures and calibrates compression models on questions whose evidence is known."""
