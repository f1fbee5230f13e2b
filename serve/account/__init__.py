"""The account of a key's owner, as the key shows it: usage, and the limits in force with what is left of them."""
