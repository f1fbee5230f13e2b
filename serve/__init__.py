"""The HTTP service: it knows models, compression and billing, and translates between their types."""
