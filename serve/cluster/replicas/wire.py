"""What travels to a replica's port and back: a request as JSON, its reply as frames of a fixed head and bytes."""

from struct import Struct
from typing import Protocol

from pydantic_core import from_json, to_json

from models.engine import EngineChunk, EngineFault, EngineRequest, TokenUsage

GENERATE_PATH = "/generate"
# Kind, tokens of prompt, completion and cache, bytes that follow.
HEAD = Struct("!BIIII")
_CHUNK, _LAST_CHUNK, _FAULT = range(3)


class Source(Protocol):
    async def readexactly(self, size: int) -> bytes:
        """Raises `asyncio.IncompleteReadError` when the reply ends before `size` bytes."""


def request_bytes(request: EngineRequest) -> bytes:
    """A request as JSON, integers of any size included."""
    return to_json(request)


def read_request(raw: bytes) -> EngineRequest:
    """What `request_bytes` made. Raises `ValueError` or `TypeError` for anything else."""
    fields = from_json(raw)
    return EngineRequest(**{**fields, "messages": tuple(fields["messages"])})


def is_last(item: EngineChunk | EngineFault) -> bool:
    """Whether nothing comes after it."""
    return isinstance(item, EngineFault) or item.finished


def frame(item: EngineChunk | EngineFault) -> bytes:
    """One item of a reply."""
    if isinstance(item, EngineFault):
        fault = to_json(item)
        return HEAD.pack(_FAULT, 0, 0, 0, len(fault)) + fault
    usage, kind = item.usage, _LAST_CHUNK if item.finished else _CHUNK
    head = HEAD.pack(kind, usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens, len(item.data))
    return head + item.data


async def read_frame(source: Source) -> EngineChunk | EngineFault:
    """The next item of a reply. Raises what `source` raises."""
    kind, prompt, completion, cached, size = HEAD.unpack(await source.readexactly(HEAD.size))
    data = await source.readexactly(size) if size else b""
    if kind == _FAULT:
        return EngineFault(**from_json(data))
    return EngineChunk(data, TokenUsage(prompt, completion, cached), finished=kind == _LAST_CHUNK)
