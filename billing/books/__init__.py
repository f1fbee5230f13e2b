"""The ledger as an operator reads it: usage, statements, receipts, savings, reconciliation."""
