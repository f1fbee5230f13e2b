"""The probability that the evidence was kept, estimated from the scores, the kind of input and the selection."""
