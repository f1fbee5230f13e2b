"""Which units are kept within a budget, and how the output is put together."""
