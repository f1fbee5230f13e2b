"""The ledger's databases: SQLite and PostgreSQL behind one interface, the schema and its migrations."""
