"""The money of the running server: what is done with it beside its requests."""
