"""What compression is trained on and measured on: data sets, the cases made of them, and what counts as kept.

Nothing here scores or compresses: `benchmarks.training` and the benchmarks both build on it.
"""
