"""What stands between a socket and the application: what a connection may hold, and how long it may take over what."""
