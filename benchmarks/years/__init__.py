"""A ledger of years: how long its books take to read and to prove, and whether its money moves as fast as before."""
