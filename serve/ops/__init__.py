"""The ops port: `/metrics`, and the admin API by which another program does what the `pith` command does."""
