"""The forms in which a fake engine answers: each is small and fixed, and keeps the shape of a real one."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from models.engine import EngineRequest, ReplyFormName

CREATED = 1_700_000_000


class FakeForm(ABC):
    """The bytes of one form."""

    @abstractmethod
    def piece(self, request: EngineRequest, index: int, piece: str) -> bytes:
        """The events of a stream that say a piece of the text; with the first one, at 0, those before it."""

    def end(self, request: EngineRequest, pieces: Sequence[str], finish_reason: str) -> bytes:
        """The events after the text that wait for nothing."""
        return b""

    @abstractmethod
    def last(self, request: EngineRequest, pieces: Sequence[str], finish_reason: str) -> bytes:
        """The last chunk's bytes: of a stream its closing events, else the reply."""


class FakeChat(FakeForm):
    """A chat completion: each choice says the same."""

    def piece(self, request: EngineRequest, index: int, piece: str) -> bytes:
        return _events(
            request, {"content": piece} if index else {"role": "assistant", "content": piece}, None
        )

    def last(self, request: EngineRequest, pieces: Sequence[str], finish_reason: str) -> bytes:
        if request.stream:
            return _events(request, {}, finish_reason)
        return _completion(request, "".join(pieces), finish_reason)


class FakeCompletion(FakeForm):
    """A completion: the same text after each prompt, in each choice."""

    def piece(self, request: EngineRequest, index: int, piece: str) -> bytes:
        return self._events(request, piece, None)

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


_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens"}


class FakeMessage(FakeForm):
    """Anthropic's message."""

    def piece(self, request: EngineRequest, index: int, piece: str) -> bytes:
        delta = {"type": "text_delta", "text": piece}
        event = _message_event({"type": "content_block_delta", "index": 0, "delta": delta})
        return event if index else self._start(request) + event

    def end(self, request: EngineRequest, pieces: Sequence[str], finish_reason: str) -> bytes:
        return _message_event({"type": "content_block_stop", "index": 0})

    def last(self, request: EngineRequest, pieces: Sequence[str], finish_reason: str) -> bytes:
        reason = _STOP_REASONS[finish_reason]
        if request.stream:
            delta = {"stop_reason": reason, "stop_sequence": None}
            ended = {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 0}}
            return _message_event(ended) + _message_event({"type": "message_stop"})
        content = [{"type": "text", "text": "".join(pieces)}]
        return json.dumps({**self._of(request, content), "stop_reason": reason}).encode()

    def _start(self, request: EngineRequest) -> bytes:
        message = {**self._of(request, []), "usage": {"input_tokens": 0, "output_tokens": 0}}
        block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        return _message_event({"type": "message_start", "message": message}) + _message_event(block)

    def _of(self, request: EngineRequest, content: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": f"msg_{request.request_id}",
            "type": "message",
            "role": "assistant",
            "model": request.model_id,
            "content": content,
            "stop_reason": None,
            "stop_sequence": None,
        }


def _message_event(fields: dict[str, Any]) -> bytes:
    return f"event: {fields['type']}\ndata: {json.dumps(fields)}\n\n".encode()


class FakeResponse(FakeForm):
    """A response of OpenAI's Responses API."""

    def piece(self, request: EngineRequest, index: int, piece: str) -> bytes:
        place = _place(request)
        said = _response_event(4 + index, "response.output_text.delta", **place, delta=piece, logprobs=[])
        return said if index else _beginning(request) + said

    def end(self, request: EngineRequest, pieces: Sequence[str], finish_reason: str) -> bytes:
        text, place, number = "".join(pieces), _place(request), 4 + len(pieces)
        message = _message(request, text, _status(finish_reason))
        return b"".join(
            (
                _response_event(number, "response.output_text.done", **place, text=text, logprobs=[]),
                _response_event(
                    number + 1, "response.content_part.done", **place, part=message["content"][0]
                ),
                _response_event(number + 2, "response.output_item.done", output_index=0, item=message),
            )
        )

    def last(self, request: EngineRequest, pieces: Sequence[str], finish_reason: str) -> bytes:
        status = _status(finish_reason)
        response = _response(request, status, [_message(request, "".join(pieces), status)])
        if not request.stream:
            return json.dumps(response).encode()
        return _response_event(7 + len(pieces), f"response.{status}", response=response)


def _beginning(request: EngineRequest) -> bytes:
    begun, message = _response(request, "in_progress", []), _message(request, "", "in_progress")
    part = message.pop("content")[0]
    item = {**message, "content": []}
    return b"".join(
        (
            _response_event(0, "response.created", response=begun),
            _response_event(1, "response.in_progress", response=begun),
            _response_event(2, "response.output_item.added", output_index=0, item=item),
            _response_event(3, "response.content_part.added", **_place(request), part=part),
        )
    )


def _status(finish_reason: str) -> str:
    return "incomplete" if finish_reason == "length" else "completed"


def _response(request: EngineRequest, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": f"resp_{request.request_id}",
        "object": "response",
        "created_at": CREATED,
        "model": request.model_id,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "usage": None,
        **request.form_options.get("response", {}),
        "status": status,
        "output": output,
    }


def _message(request: EngineRequest, text: str, status: str) -> dict[str, Any]:
    return {
        "id": f"msg_{request.request_id}_0",
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}],
    }


def _place(request: EngineRequest) -> dict[str, Any]:
    return {"item_id": f"msg_{request.request_id}_0", "output_index": 0, "content_index": 0}


def _response_event(number: int, kind: str, **fields: Any) -> bytes:
    data = json.dumps({"type": kind, "sequence_number": number, **fields})
    return f"event: {kind}\ndata: {data}\n\n".encode()


FAKE_FORMS: Mapping[ReplyFormName, FakeForm] = {
    "chat": FakeChat(),
    "completion": FakeCompletion(),
    "message": FakeMessage(),
    "response": FakeResponse(),
}
