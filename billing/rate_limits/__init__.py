"""Requests and tokens a minute, and requests in flight, counted in memory or in Redis."""
