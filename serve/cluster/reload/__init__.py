"""`pith reload`: what a new configuration changes in a running server, and who asks for it."""
