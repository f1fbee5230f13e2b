"""Holds and their leases, usage events, the spool and price lists: the money of requests."""
