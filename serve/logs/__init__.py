"""Log lines of a running server: as text or as JSON, and never in the way of a request."""
