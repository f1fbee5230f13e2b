"""In which form a reply is written around what the engine said: the contract's here, a dialect's where it is spoken."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from models.engine import EngineRequest
from models.errors import EngineFailed
from serve.chat.final_events import completed_reply, error_event, final_events
from serve.http.errors import Problem


@dataclass(frozen=True, slots=True)
class EndedStream:
    """A stream whose pieces were sent, but for those that were held back: its closing events."""

    request: EngineRequest
    first_event: bytes
    held_back: bytes


class ReplyForm(Protocol):
    """`charged` has the contract's `usage` and `service` of what was settled."""

    @property
    def holds_back_last(self) -> bool:
        """Whether the engine's last piece of a stream tells its usage, and waits for the settlement."""

    def checked(self, data: bytes) -> dict[str, Any]:
        """The engine's reply in one piece. Raises `EngineFailed` for bytes that are none."""

    def completed(self, reply: dict[str, Any], charged: Mapping[str, Any]) -> bytes:
        """The reply in one piece, as the caller gets it."""

    def closing(self, stream: EndedStream, charged: Mapping[str, Any]) -> bytes:
        """What ends a stream."""

    def error(self, problem: Problem, charged: Mapping[str, Any], request: EngineRequest) -> bytes:
        """What ends a stream that broke. `charged` is empty where nothing was."""


class ContractForm:
    """Chat completions as the contract has them: usage and billing in the last event, whatever was asked."""

    holds_back_last = False

    def checked(self, data: bytes) -> dict[str, Any]:
        return checked_object(data, listed="choices")

    def completed(self, reply: dict[str, Any], charged: Mapping[str, Any]) -> bytes:
        return completed_reply(reply, charged)

    def closing(self, stream: EndedStream, charged: Mapping[str, Any]) -> bytes:
        return final_events(charged, stream.request, stream.first_event)

    def error(self, problem: Problem, charged: Mapping[str, Any], request: EngineRequest) -> bytes:
        return error_event(problem, charged)


CONTRACT = ContractForm()


def checked_object(data: bytes, *, listed: str) -> dict[str, Any]:
    """A reply that is a JSON object with a list of that name that is not empty. Raises `EngineFailed` for others."""
    try:
        reply = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise EngineFailed("the engine's reply is not JSON") from error
    if not isinstance(reply, dict) or not isinstance(reply.get(listed), list) or not reply[listed]:
        raise EngineFailed("the engine's reply is not a chat completion")
    return reply
