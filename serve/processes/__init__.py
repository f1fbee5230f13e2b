"""Processes of one server on one machine, and what they share: the port, the rate-limit counters, a private folder."""
