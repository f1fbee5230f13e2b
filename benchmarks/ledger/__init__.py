"""What the ledger costs a request, and how many settlements a second it takes, on SQLite and on PostgreSQL."""
