"""Rate limits counted in one process for every HTTP process of a server."""
