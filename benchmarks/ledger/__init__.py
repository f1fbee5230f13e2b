"""Cost of the ledger to a request, and its settlements a second, on SQLite and on PostgreSQL."""
