"""Savings of compression inside chat: bills, tokens, cache hits and waiting times with and without it, over HTTP."""
