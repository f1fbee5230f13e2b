"""What a fake engine says as Anthropic's message: one block of text."""

import json
from collections.abc import Sequence
from typing import Any

from models.engine import EngineRequest

_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens"}


class FakeMessage:
    """The `models.fake_forms.FakeForm` of messages."""

    def piece(self, request: EngineRequest, index: int, piece: str) -> bytes:
        delta = {"type": "text_delta", "text": piece}
        event = _event({"type": "content_block_delta", "index": 0, "delta": delta})
        return event if index else self._start(request) + event

    def end(self, request: EngineRequest, pieces: Sequence[str], finish_reason: str) -> bytes:
        return _event({"type": "content_block_stop", "index": 0})

    def last(self, request: EngineRequest, pieces: Sequence[str], finish_reason: str) -> bytes:
        reason = _STOP_REASONS[finish_reason]
        if request.stream:
            delta = {"stop_reason": reason, "stop_sequence": None}
            ended = {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 0}}
            return _event(ended) + _event({"type": "message_stop"})
        content = [{"type": "text", "text": "".join(pieces)}]
        return json.dumps({**self._of(request, content), "stop_reason": reason}).encode()

    def _start(self, request: EngineRequest) -> bytes:
        message = {**self._of(request, []), "usage": {"input_tokens": 0, "output_tokens": 0}}
        block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        return _event({"type": "message_start", "message": message}) + _event(block)

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


def _event(fields: dict[str, Any]) -> bytes:
    return f"event: {fields['type']}\ndata: {json.dumps(fields)}\n\n".encode()
