"""The protocol between HTTP processes and the one that counts for them: four bytes of length, then JSON."""

import asyncio
from dataclasses import dataclass, field
from struct import Struct

from pydantic import TypeAdapter

from billing.rate_limits.counters import Answer, Ask, CountedLimit

_LENGTH = Struct("!I")
# A project's name is its longest part.
LONGEST = 64 * 1024


@dataclass(frozen=True, slots=True)
class Asked:
    """`take`; or `ticket`, and what to give back of its request. The reply has the same number."""

    number: int
    take: Ask | None = None
    ticket: str | None = None
    unused: dict[CountedLimit, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answered:
    number: int
    answer: Answer | None = None


ASKED = TypeAdapter(Asked)
ANSWERED = TypeAdapter(Answered)


def framed(body: bytes) -> bytes:
    return _LENGTH.pack(len(body)) + body


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """Raises `asyncio.IncompleteReadError` at the end, and `ValueError` for a frame longer than any may be."""
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if length > LONGEST:
        raise ValueError(f"a frame of {length} bytes")
    return await reader.readexactly(length)
