"""The transparency log: usage events and adjustments as leaves of a Merkle tree whose checkpoints are signed."""
