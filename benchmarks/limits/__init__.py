"""Cost of a caller's bytes: every bound of the service, and the time and memory taken as it is approached."""
