"""The scorers that need torch: encoders, token and query classifiers, and how their work is batched."""
