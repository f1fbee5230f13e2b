"""Places on engines, shared fairly between projects: which request is next, and how much one project may hold."""
