"""The way from the ingress to an engine's replica: Ray says which replicas run, the bytes go straight to one of them.

`replicas` picks one and keeps Ray's books of the load, `client` sends it the request, `port` is where the replica
listens, `wire` is what travels, `router` and `prefixes` say who is picked.
"""
