"""Usage that waits on this machine for the ledger."""
