"""Training of the weights, checkpoints and calibrations that come with pith; run in a checkout, never by a server.

`python -m benchmarks.training --data ../shared/eval` trains the lexical scorer.
"""
