"""Commands on the ledger: accounts and webhooks, usage and statements, collections and adjustments, the spool."""
