"""What runs beside requests: replay of the spool, leases, collections."""
