"""What the ops port reads of the ledger itself: the same whatever process is asked, and no part of any request."""
