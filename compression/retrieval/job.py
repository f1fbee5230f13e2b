"""A retrieval model to load, a job for one, and its answer, as plain values."""

from dataclasses import dataclass
from typing import Literal

from compression.pipeline.spec import Dtype

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


@dataclass(frozen=True, slots=True)
class EncoderSpec:
    """`checkpoint`: a folder or hub name; `revision`: its commit. `context_length`: tokens of a window. `threads`: of
    the CPU; None: torch's own number. `max_waiting_tokens`: what may wait for the network; above, work is refused.
    `memory_share`: part of a GPU's memory that the process may take."""

    does: Literal["embed", "relate"]
    checkpoint: str
    revision: str | None
    context_length: int
    device: str = "cpu"
    memory_share: float = 1.0
    dtype: Dtype = "float32"
    threads: int | None = None
    batch_tokens: int = 4096
    max_waiting_tokens: int = 4_000_000
