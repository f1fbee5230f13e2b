"""What stands between a socket and the application: how long a connection may take over what."""
