"""What can go wrong with a neural compression model, named for what happened."""


class CheckpointRefused(ValueError):
    """A checkpoint that cannot be used: missing, of another kind, or only loadable by running its code."""

    def __init__(self, checkpoint: str, reason: str) -> None:
        super().__init__(f"checkpoint {checkpoint!r}: {reason}")
        self.checkpoint = checkpoint
        self.reason = reason


class NeuralOverloaded(RuntimeError):
    """More tokens wait for the network than it may let wait."""

    def __init__(self, waiting_tokens: int, limit: int) -> None:
        super().__init__(f"{waiting_tokens} tokens wait for the compression network, more than {limit} may")
        self.waiting_tokens = waiting_tokens
        self.limit = limit


class NeuralClosed(RuntimeError):
    """The service was closed before the work was done."""


class QueryTooLong(ValueError):
    """A query that leaves no room for context in a window."""

    def __init__(self, tokens: int, limit: int) -> None:
        super().__init__(
            f"query: {tokens} tokens, more than the {limit} that leave room for context in a window"
        )
        self.tokens = tokens
        self.limit = limit


class TokenCounterUnavailable(RuntimeError):
    """The tokenizer by which LLMLingua weighs words could not be loaded."""
