"""A hold is a lease: its owner renews it while its request lives, and what no owner renews is given back."""
