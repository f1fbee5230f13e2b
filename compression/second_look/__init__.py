"""A second look over scored units: evidence names other evidence, and an agent repeats what it was told."""
