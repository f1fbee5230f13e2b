"""Embedding and rerank models, which give numbers for texts: the backends that run them, and their protocol.

A new backend is a row in `EMBEDDING_BACKENDS`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, cast

from models.engine import EngineFault

RetrievalKind = Literal["embedding", "rerank"]
Text = str | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RetrievalJob:
    """`embed` makes a vector of each of `texts`; `relate` says how relevant each is to the query, or to its own query
    where there are as many queries as texts. A text to embed may be tokens of the model's own.

    A text of more than `longest` tokens is refused; of `relate`, with `cut`, texts are cut to so many tokens instead.
    `only_counts`: nothing is computed, the answer has its tokens.
    """

    does: Literal["embed", "relate"]
    texts: tuple[Text, ...]
    longest: int
    queries: tuple[str, ...] = ()
    dimensions: int | None = None
    cut: int | None = None
    only_counts: bool = False

    @property
    def size(self) -> int:
        """Bytes of texts and queries; a text given as tokens counts as four bytes for each."""
        return sum(
            len(text.encode()) if isinstance(text, str) else 4 * len(text) for text in self.texts
        ) + sum(len(query.encode()) for query in self.queries)

    def counting(self) -> RetrievalJob:
        return replace(self, only_counts=True)


@dataclass(frozen=True, slots=True)
class Computed:
    """The tokens that were read, and a row of `width` numbers for each text, float32 and little-endian. A query counts
    once with each of its texts, as a cross-encoder reads it."""

    tokens: int
    width: int = 0
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class RetrievalSpec:
    """The parameters of a model's start. `checkpoint`: a folder or hub name; `shortens`: whether its vectors may be
    cut; `options`: the engine's own arguments, under its own names."""

    model_id: str
    does: Literal["embed", "relate"]
    checkpoint: str
    revision: str | None
    context_length: int
    shortens: bool
    options: Mapping[str, Any]


class RetrievalReplica(Protocol):
    """One started model in its replica."""

    async def compute(self, job: RetrievalJob, *, payer: str) -> Computed | EngineFault:
        """`payer` is whose turn it is, where several wait. A cancellation ends the work."""

    def check(self) -> None:
        """Raises where it can never answer again."""

    async def stop(self) -> None:
        """End what it runs."""


class RetrievalModel(Protocol):
    """One model as the HTTP service has it, wherever its replicas run."""

    async def compute(self, job: RetrievalJob, *, payer: str) -> Computed:
        """`payer` is whose turn it is, where several wait. A cancellation ends the work.

        Raises `EngineRejected` for what the caller can put right, `EngineUnavailable`, or `EngineFailed`.
        """

    async def ready(self) -> bool:
        """Say whether a replica is up, without starting one."""


# By `engine.kind`: a module with `async def start(spec: RetrievalSpec) -> RetrievalReplica`, for replicas alone.
# It may begin whatever it is given: projects take turns before it. `encoder` is compression's own, and no row here.
EMBEDDING_BACKENDS: Mapping[str, str] = {"vllm": "models.vllm.pooling"}


async def start_backend(kind: str, spec: RetrievalSpec) -> RetrievalReplica:
    """A started model. Raises what the backend's `start` raises."""
    return cast(RetrievalReplica, await importlib.import_module(EMBEDDING_BACKENDS[kind]).start(spec))
