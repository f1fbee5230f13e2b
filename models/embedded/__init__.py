"""Four tiny chat models that come with pith, so that the whole service runs without a download or a GPU; and a real
one, which it fetches.

The tiny ones exercise the service; their output is meaningless. `benchmarks/training/chat_models` rebuilds them.
"""
