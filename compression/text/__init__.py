"""Text whatever it is part of: words, scripts, brackets."""
