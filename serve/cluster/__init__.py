"""Ray, and nothing else: the start and the stop of a server, its deployments, and the way to its replicas."""
