"""Choice of units within a budget, and the output put together from them."""
