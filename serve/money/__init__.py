"""The money of the running server: what a request can come to, how it is settled, and what is done beside requests."""
