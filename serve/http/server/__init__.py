"""The server around the application: what a connection may hold, and how long it may take over what."""
