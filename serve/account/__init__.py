"""What a key's owner may know of their own account: usage, and the limits in force with what is left of them."""
