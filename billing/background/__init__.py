"""Background work of a server: rounds that repeat, and the upkeep of its ledger."""
