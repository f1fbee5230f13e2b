"""Who may spend, what a request costs, and what was spent: accounts, prices, holds and the usage ledger."""
