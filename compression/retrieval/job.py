"""A job for a retrieval model and its answer, as plain values."""

from dataclasses import dataclass
from typing import Literal

Text = str | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RetrievalJob:
    """`embed` makes a vector of each of `texts`; `relate` says how relevant each is to the query, or to its own query
    where there are as many queries as texts.

    A text of more than `longest` tokens is refused, but of `relate` cut to `cut` tokens where that is given.
    `only_counts`: nothing is computed, the answer has its tokens.
    """

    does: Literal["embed", "relate"]
    texts: tuple[Text, ...]
    longest: int
    queries: tuple[str, ...] = ()
    dimensions: int | None = None
    cut: int | None = None
    only_counts: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """The tokens that were read; of a job that computes, a row of `width` numbers for each text, float32 and
    little-endian. A query counts once with each of its texts."""

    tokens: int
    width: int = 0
    data: bytes = b""
