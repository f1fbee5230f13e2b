"""What an operator reads, accounts and usage and all else, as names with plain values: for commands and over HTTP."""
