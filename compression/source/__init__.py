"""The source as everything works on it: its units and slices, its text, and its tokens."""
