"""What a running server writes of itself, line by line: as text or as JSON, and never in the way of a request."""
