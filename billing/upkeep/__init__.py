"""Background work: replay of the spool, leases, collections."""
