"""Cost of pith beside the bare engine, and beside what an operator would put in front of one instead."""
