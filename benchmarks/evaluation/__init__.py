"""Data sets that compression is trained on and measured on, the cases made of them, and the measure of what is kept.

Nothing here scores or compresses: `benchmarks.training` and the benchmarks both build on it.
"""
