"""Holds, usage events and price lists: the money of requests."""
