"""Requests and tokens by minute, hour and day, and requests in flight: those a minute and in flight counted in memory
or in Redis."""
