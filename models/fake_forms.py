"""The forms in which a fake engine answers: each is small and fixed, and keeps the shape of a real one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from models.engine import EngineRequest, ReplyFormName
from models.fake_message import FakeMessage
from models.fake_response import FakeResponse

CREATED = 1_700_000_000


class FakeForm(Protocol):
    """The bytes of one form."""

    def piece(self, request: EngineRequest, index: int, piece: str) -> bytes:
        """The events of a stream that say a piece of the text; with the first one, at 0, those before it."""

    def end(self, request: EngineRequest, pieces: Sequence[str], finish_reason: str) -> bytes:
        """The events after the text that wait for nothing."""

    def last(self, request: EngineRequest, pieces: Sequence[str], finish_reason: str) -> bytes:
        """What the last chunk has: of a stream its closing events, else the reply."""


class FakeChat:
    """A chat completion: each choice says the same."""

    def piece(self, request: EngineRequest, index: int, piece: str) -> bytes:
        return _events(
            request, {"content": piece} if index else {"role": "assistant", "content": piece}, None
        )

    def end(self, request: EngineRequest, pieces: Sequence[str], finish_reason: str) -> bytes:
        return b""

    def last(self, request: EngineRequest, pieces: Sequence[str], finish_reason: str) -> bytes:
        if request.stream:
            return _events(request, {}, finish_reason)
        return _completion(request, "".join(pieces), finish_reason)


class FakeCompletion:
    """A completion: the same text after each prompt, in each choice."""

    def piece(self, request: EngineRequest, index: int, piece: str) -> bytes:
        return self._events(request, piece, None)

    def end(self, request: EngineRequest, pieces: Sequence[str], finish_reason: str) -> bytes:
        return b""

    def last(self, request: EngineRequest, pieces: Sequence[str], finish_reason: str) -> bytes:
        if request.stream:
            return self._events(request, "", finish_reason)
        return json.dumps(self._of(request, _choices(request), "".join(pieces), finish_reason)).encode()

    def _events(self, request: EngineRequest, text: str, finish_reason: str | None) -> bytes:
        chunks = [self._of(request, [index], text, finish_reason) for index in _choices(request)]
        return b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks)

    def _of(
        self, request: EngineRequest, indices: Iterable[int], text: str, finish_reason: str | None
    ) -> dict[str, Any]:
        fields = {"text": text, "logprobs": None, "finish_reason": finish_reason}
        choices = [{"index": index, **fields} for index in indices]
        return {**_head(request, "text_completion", prefix="cmpl"), "choices": choices}


FAKE_FORMS: Mapping[ReplyFormName, FakeForm] = {
    "chat": FakeChat(),
    "completion": FakeCompletion(),
    "message": FakeMessage(),
    "response": FakeResponse(),
}


def _choices(request: EngineRequest) -> range:
    return range(request.sequences)


def _head(request: EngineRequest, kind: str, *, prefix: str = "chatcmpl") -> dict[str, Any]:
    return {
        "id": f"{prefix}-{request.request_id}",
        "object": kind,
        "created": CREATED,
        "model": request.model_id,
    }


def _events(request: EngineRequest, delta: dict[str, Any], finish_reason: str | None) -> bytes:
    """One SSE event for each choice."""
    events = []
    for index in _choices(request):
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        chunk = {**_head(request, "chat.completion.chunk"), "choices": [choice]}
        events.append(b"data: " + json.dumps(chunk).encode() + b"\n\n")
    return b"".join(events)


def _completion(request: EngineRequest, text: str, finish_reason: str) -> bytes:
    message = {"role": "assistant", "content": text, "refusal": None}
    listed = [
        {"index": index, "message": message, "logprobs": None, "finish_reason": finish_reason}
        for index in _choices(request)
    ]
    return json.dumps({**_head(request, "chat.completion"), "choices": listed}).encode()
