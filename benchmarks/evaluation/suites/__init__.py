"""The suites: a module for each kind of text, `catalogue` with all of them, and what counts as kept in each family."""
