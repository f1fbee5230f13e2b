"""What requests of the admin API may hold, and what its answers do."""
