"""A fake engine's answer as a response of OpenAI's Responses API: one message of text, in its events or whole."""

import json
from collections.abc import Sequence
from typing import Any

from models.engine import EngineRequest

CREATED = 1_700_000_000


class FakeResponse:
    """The `models.fake_forms.FakeForm` of responses."""

    def piece(self, request: EngineRequest, index: int, piece: str) -> bytes:
        place = _place(request)
        said = _event(4 + index, "response.output_text.delta", **place, delta=piece, logprobs=[])
        return said if index else _beginning(request) + said

    def end(self, request: EngineRequest, pieces: Sequence[str], finish_reason: str) -> bytes:
        text, place, number = "".join(pieces), _place(request), 4 + len(pieces)
        message = _message(request, text, _status(finish_reason))
        return b"".join(
            (
                _event(number, "response.output_text.done", **place, text=text, logprobs=[]),
                _event(number + 1, "response.content_part.done", **place, part=message["content"][0]),
                _event(number + 2, "response.output_item.done", output_index=0, item=message),
            )
        )

    def last(self, request: EngineRequest, pieces: Sequence[str], finish_reason: str) -> bytes:
        status = _status(finish_reason)
        response = _response(request, status, [_message(request, "".join(pieces), status)])
        if not request.stream:
            return json.dumps(response).encode()
        return _event(7 + len(pieces), f"response.{status}", response=response)


def _beginning(request: EngineRequest) -> bytes:
    begun, message = _response(request, "in_progress", []), _message(request, "", "in_progress")
    part = message.pop("content")[0]
    item = {**message, "content": []}
    return b"".join(
        (
            _event(0, "response.created", response=begun),
            _event(1, "response.in_progress", response=begun),
            _event(2, "response.output_item.added", output_index=0, item=item),
            _event(3, "response.content_part.added", **_place(request), part=part),
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


def _event(number: int, kind: str, **fields: Any) -> bytes:
    data = json.dumps({"type": kind, "sequence_number": number, **fields})
    return f"event: {kind}\ndata: {data}\n\n".encode()
