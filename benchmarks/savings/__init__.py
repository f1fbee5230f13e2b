"""What compression inside chat saves: bills, tokens, cache hits and waiting times with and without it, over HTTP."""
