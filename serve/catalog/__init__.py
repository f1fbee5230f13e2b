"""The models on offer: the public price list, and those that a key may use."""
