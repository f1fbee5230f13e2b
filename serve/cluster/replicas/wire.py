"""The protocol of a replica's port: the replica's token and a request as JSON go in, frames of the reply come out."""

import hmac
from struct import Struct
from typing import Protocol

from pydantic_core import from_json, to_json

from models.engine import EngineChunk, EngineFault, EngineRequest, TokenUsage

# The limit of a stream's buffer: beyond twice as many unread bytes, reading from the network pauses.
READ_AHEAD_BYTES = 2**18
TOKEN_BYTES = 32
# The token, and the bytes of the request that follow.
ASKED = Struct(f"!{TOKEN_BYTES}sI")
# Kind, tokens of prompt, completion, cache and reasoning, bytes that follow.
HEAD = Struct("!BIIIII")
_CHUNK, _LAST_CHUNK, _FAULT, _REFUSAL = range(4)
REFUSAL = HEAD.pack(_REFUSAL, 0, 0, 0, 0, 0)


class WrongToken(Exception):
    """The request is for another replica, or from a stranger."""


class Source(Protocol):
    async def readexactly(self, size: int) -> bytes:
        """Raises `asyncio.IncompleteReadError` at the end, if it comes before `size` bytes."""


def asked_bytes(request: EngineRequest, token: str) -> bytes:
    """A request for the replica that has this token; as JSON, integers of any size included."""
    raw = to_json(request)
    return ASKED.pack(token.encode(), len(raw)) + raw


async def read_size(source: Source, token: str) -> int:
    """How many bytes of the next request follow, for `read_request`. Raises `WrongToken`, and what `source` raises."""
    given, size = ASKED.unpack(await source.readexactly(ASKED.size))
    if not hmac.compare_digest(given, token.encode()):
        raise WrongToken
    return int(size)


def read_request(raw: bytes) -> EngineRequest:
    """Raises `ValueError`, `TypeError` or `KeyError` if `raw` is no request."""
    fields = from_json(raw)
    prompts = tuple(tuple(one) if isinstance(one, list) else one for one in fields["prompts"])
    return EngineRequest(**{**fields, "messages": tuple(fields["messages"]), "prompts": prompts})


def is_last(item: EngineChunk | EngineFault) -> bool:
    """Whether nothing comes after it."""
    return isinstance(item, EngineFault) or item.finished


def frame(item: EngineChunk | EngineFault) -> bytes:
    """One item of a reply."""
    if isinstance(item, EngineFault):
        fault = to_json(item)
        return HEAD.pack(_FAULT, 0, 0, 0, 0, len(fault)) + fault
    usage, kind = item.usage, _LAST_CHUNK if item.finished else _CHUNK
    tokens = (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens, usage.reasoning_tokens)
    return HEAD.pack(kind, *tokens, len(item.data)) + item.data


async def read_frame(source: Source) -> EngineChunk | EngineFault:
    """The next item of a reply. Raises `WrongToken` where the request was refused, and what `source` raises."""
    kind, *tokens, size = HEAD.unpack(await source.readexactly(HEAD.size))
    if kind == _REFUSAL:
        raise WrongToken
    data = await source.readexactly(size) if size else b""
    if kind == _FAULT:
        return EngineFault(**from_json(data))
    return EngineChunk(data, TokenUsage(*tokens), finished=kind == _LAST_CHUNK)
