"""The compression models of this server, as requests of every kind meet them."""
