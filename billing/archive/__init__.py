"""Months of usage events that leave the ledger: written to files, proven there, and only then deleted."""
