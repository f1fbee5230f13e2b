"""The HTTP server around the application: bounds on connections, deadlines for what is sent and read."""
