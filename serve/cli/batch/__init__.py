"""`pith batch`: files of requests, sent to a running pith and fetched from it."""
