"""Texts as a retrieval model is given them: counted in its tokens, cut or refused where they are too long."""

from collections.abc import Sequence

from compression.counting.tokenizer_counter import TokenizerCounter
from compression.pipeline.errors import TextTooLong
from compression.retrieval.job import Text


def counted(counter: TokenizerCounter, texts: Sequence[Text]) -> list[int]:
    """The tokens of each text; of one given as tokens, as many as were given."""
    strings = iter(counter.count_many([text for text in texts if isinstance(text, str)]))
    return [next(strings) if isinstance(text, str) else len(text) for text in texts]


def check_lengths(counts: Sequence[int], longest: int, field: str) -> None:
    """Raises `TextTooLong` for the first one that is too long."""
    for at, count in enumerate(counts):
        if count > longest:
            message = f"has {count:,} tokens; this model's maximum context length is {longest:,} tokens"
            raise TextTooLong(f"{field}.{at}" if len(counts) > 1 else field, message)
