"""What `pith` itself is: its verbs, each imported only when it is called, its version, and shell completion."""
