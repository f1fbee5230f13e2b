"""Billing: accounts and their keys, prices, holds and the usage ledger."""
