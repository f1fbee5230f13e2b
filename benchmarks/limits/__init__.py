"""What a caller's bytes can cost: every bound of the service, and the time and memory taken as it is approached."""
