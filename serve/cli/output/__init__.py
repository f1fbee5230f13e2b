"""How commands print: tables, JSON and CSV, and accounts in each."""
