"""Backups: a copy of everything that a server must not lose, made while it runs, and put in place elsewhere."""
