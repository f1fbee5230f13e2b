"""Requests that are paid or limited, in every shape that their routes know. A new route is a row here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any
from uuid import uuid4

from tests.serve.compressing import CONTEXT, QUERY
from tests.serve.served import token_cost

Json = dict[str, Any]
# What a limit has room for is one chat, which uses it up exactly.
SPENT_TOKENS = 6
CHAT_NANO_USD, CHAT_TOKENS, CHAT_USD = token_cost(SPENT_TOKENS), 2 + SPENT_TOKENS, r"\$0\.0026"
# More tokens than that chat has: no request fits before all of a minute has gone by.
ASKED = "When does the warranty of this pump end, and which parts does it have?"
RATIO = {"target_ratio": 0.5}
TIERS = ("", "flex", "priority")
# Whom and what every request is for.
PERSON, TAG = "alice", "research"
LABELS: Json = {"user": PERSON, "metadata": {"tags": TAG}}


@dataclass(frozen=True)
class Row:
    """A kind of request: what it asks, and which of the ways to ask its route knows."""

    name: str
    path: str
    body: Callable[[Shape], Json]
    streams: bool = False
    compresses: bool = False
    tiers: bool = False
    # As batches call it; None: they do not take it.
    in_batches: str | None = None
    headers: tuple[str, ...] = ("authorization",)

    def shapes(self) -> Iterator[Shape]:
        ways = product(
            (False, True) if self.streams else (False,),
            (False, True) if self.compresses else (False,),
            TIERS if self.tiers else ("",),
            self.headers,
        )
        return (Shape(self, *way) for way in ways)


@dataclass(frozen=True)
class Shape:
    """One way to ask for it."""

    row: Row
    streams: bool = False
    compresses: bool = False
    tier: str = ""
    header: str = "authorization"

    @property
    def name(self) -> str:
        ways = ("stream" * self.streams, "compressed" * self.compresses, self.tier)
        sent = "" if self.header == "authorization" else self.header
        return " ".join([self.row.name, *filter(None, (*ways, sent))])

    @property
    def labels(self) -> Json:
        """The fields that name its person and its tag."""
        is_message = self.row.path.startswith("/anthropic/")
        return {"metadata": {"user_id": PERSON, "tags": TAG}} if is_message else LABELS

    @property
    def body(self) -> Json:
        """With everything that the shape adds, whether its route knows it or not."""
        added: Json = {"stream": True} if self.streams else {}
        if self.compresses:
            added["compression"] = {**RATIO, "min_tokens": 1}
        if self.tier:
            added["service_tier"] = self.tier
        return {**self.row.body(self), **added}


def _content(shape: Shape, kind: str = "text") -> Any:
    """A text, or what is to be compressed before it, which differs so that no cache has it."""
    if not shape.compresses:
        return ASKED
    marked = {"type": kind, "text": f"{CONTEXT}\n\nIts number is {uuid4()}.", "compress": True}
    return [marked, {"type": kind, "text": ASKED}]


def _chat(shape: Shape) -> Json:
    return {"messages": [{"role": "user", "content": _content(shape)}], "max_tokens": SPENT_TOKENS}


def _completion(shape: Shape) -> Json:
    return {"model": "alpha", "prompt": ASKED, "max_tokens": SPENT_TOKENS}


def _response(shape: Shape) -> Json:
    asked = [{"role": "user", "content": _content(shape, "input_text")}]
    return {"model": "alpha", "input": asked, "max_output_tokens": SPENT_TOKENS}


def _embeddings(shape: Shape) -> Json:
    return {"model": "small", "input": ASKED}


def _rerank(shape: Shape) -> Json:
    return {"model": "order", "query": ASKED, "documents": [ASKED]}


def _score(shape: Shape) -> Json:
    return {"model": "order", "text_1": ASKED, "text_2": ASKED}


def _input(shape: Shape) -> Json:
    return {"query": QUERY, "input": CONTEXT, "compression": RATIO}


def _queried(shape: Shape) -> Json:
    return {"query": QUERY, "messages": [{"role": "user", "content": CONTEXT}], "compression": RATIO}


def _messages(shape: Shape) -> Json:
    told = {"role": "tool", "tool_call_id": "a", "content": f"{CONTEXT}\n\nIts number is {uuid4()}."}
    asked = {"role": "user", "content": QUERY}
    return {"messages": [asked, told, asked], "compression": {**RATIO, "min_tokens": 1, "scope": "all"}}


def _items(shape: Shape) -> Json:
    return {"items": [{"query": QUERY, "input": CONTEXT}], "compression": RATIO}


BOTH_HEADERS = ("authorization", "x-api-key")
ALL: Any = {"streams": True, "compresses": True, "tiers": True}
ROWS = (
    Row("chat", "/v1/chat/completions", _chat, **ALL),
    Row("openai chat", "/openai/v1/chat/completions", _chat, **ALL, in_batches="/v1/chat/completions"),
    Row("completions", "/openai/v1/completions", _completion, True, False, True, "/v1/completions"),
    Row("responses", "/openai/v1/responses", _response, **ALL, in_batches="/v1/responses"),
    Row("messages", "/anthropic/v1/messages", _chat, True, True, headers=BOTH_HEADERS),
    Row("count_tokens", "/anthropic/v1/messages/count_tokens", _chat, headers=BOTH_HEADERS),
    Row("embeddings", "/openai/v1/embeddings", _embeddings, in_batches="/v1/embeddings"),
    Row("rerank", "/openai/v1/rerank", _rerank),
    Row("rerank v2", "/openai/v2/rerank", _rerank),
    Row("score", "/openai/v1/score", _score),
    Row("compress input", "/v1/compress", _input, in_batches="/v1/compress"),
    Row("compress queried", "/v1/compress", _queried, in_batches="/v1/compress"),
    Row("compress messages", "/v1/compress", _messages),
    Row("compress many", "/v1/batch/compress", _items, streams=True),
)
SHAPES = tuple(shape for row in ROWS for shape in row.shapes())
