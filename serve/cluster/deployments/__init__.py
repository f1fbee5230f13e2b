"""Ray's shells around plain objects, one a module, since a process holds in memory what its module imports."""
