"""How tokens are counted."""
