"""Replies of /openai/v1 against the types of the `openai` package: nothing missing, nothing of a wrong type."""

from __future__ import annotations

import base64
import json
import re
from array import array
from functools import cache
from typing import Any, Literal, NamedTuple

from openai.pagination import SyncCursorPage, SyncPage
from openai.types import (
    Batch,
    Completion,
    CompletionChoice,
    CreateEmbeddingResponse,
    ErrorObject,
    FileDeleted,
    FileObject,
    Model,
)
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

PREFIX = "/openai/v1"


class CompletionPieceChoice(CompletionChoice):
    """Of a stream: only the last piece says why it ended, though OpenAI's type has it in each."""

    finish_reason: Literal["stop", "length", "content_filter"] | None  # type: ignore[assignment]


class CompletionPiece(Completion):
    """A piece of a streamed completion; its usage comes in one without choices."""

    choices: list[CompletionPieceChoice]  # type: ignore[assignment]


class Shape(NamedTuple):
    """What a route answers, and what each event of its stream is."""

    method: str
    path: str
    reply: Any
    event: Any = None


SHAPES = (
    Shape("GET", "/models", SyncPage[Model]),
    Shape("GET", "/models/.+", Model),
    Shape("POST", "/chat/completions", ChatCompletion, ChatCompletionChunk),
    Shape("POST", "/completions", Completion, CompletionPiece),
    Shape("POST", "/responses", Response, ResponseStreamEvent),
    Shape("GET", "/responses/[^/]+", Response),
    Shape("POST", "/embeddings", CreateEmbeddingResponse),
    Shape("POST", "/files", FileObject),
    Shape("GET", "/files", SyncCursorPage[FileObject]),
    Shape("GET", "/files/[^/]+", FileObject),
    Shape("DELETE", "/files/[^/]+", FileDeleted),
    Shape("POST", "/batches(/[^/]+/cancel)?", Batch),
    Shape("GET", "/batches", SyncCursorPage[Batch]),
    Shape("GET", "/batches/[^/]+", Batch),
)


@cache
def adapter(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)


def check_reply(method: str, path: str, status: int, content_type: str, body: bytes) -> None:
    """Raises pydantic's `ValidationError` where OpenAI's clients would be given what their types do not promise.

    What is not of a route above is left alone: other dialects, files' contents, rerank and score, which OpenAI has not.
    """
    if not path.startswith(f"{PREFIX}/"):
        return
    if status >= 400:
        adapter(ErrorObject).validate_json(json.dumps(json.loads(body)["error"]), strict=True)
        return
    for shape in SHAPES:
        if shape.method == method and re.fullmatch(PREFIX + shape.path, path):
            if content_type.startswith("text/event-stream"):
                check_stream(shape.event, body)
            else:
                adapter(shape.reply).validate_json(with_numbers(body), strict=True)
            return


def with_numbers(body: bytes) -> bytes:
    """With vectors in base64 as the numbers that OpenAI's client makes of them."""
    if b'"object":"embedding"' not in body:
        return body
    reply = json.loads(body)
    for item in reply["data"]:
        if isinstance(item["embedding"], str):
            item["embedding"] = array("f", base64.b64decode(item["embedding"])).tolist()
    return json.dumps(reply).encode()


def check_stream(event: Any, body: bytes) -> None:
    """Every event of a stream, but for the error that may end it."""
    for found in re.findall(rb"^data: (.+)$", body, re.MULTILINE):
        if found == b"[DONE]":
            continue
        error = json.loads(found).get("error")
        if error is None:
            adapter(event).validate_json(found, strict=True)
        else:
            adapter(ErrorObject).validate_json(json.dumps(error), strict=True)
