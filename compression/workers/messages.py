"""Messages through a worker's socket: jobs and answers as MessagePack, each in a frame. Nothing in them is code."""

import asyncio
import socket
import struct
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.msgpack import Decoder, Encoder

from compression.pipeline.compression_model import CompressionFault, CompressionRequest, CompressionResult
from compression.retrieval.job import Answer, RetrievalJob

# Bytes of the payload, and the number of its job.
_HEAD = struct.Struct("<IQ")


class Frame(NamedTuple):
    """`number` says which job it is, or is answered. Without a payload it asks for the end of that job."""

    number: int
    payload: bytes

    def packed(self) -> bytes:
        return _HEAD.pack(len(self.payload), self.number) + self.payload


def read_from(peer: socket.socket) -> Frame | None:
    """The next frame, or None where the peer has closed."""
    head = _exactly(peer, _HEAD.size)
    if head is None:
        return None
    length, number = _HEAD.unpack(head)
    payload = _exactly(peer, length)
    return None if payload is None else Frame(number, payload)


async def read(reader: asyncio.StreamReader) -> Frame | None:
    """The same from a stream."""
    try:
        length, number = _HEAD.unpack(await reader.readexactly(_HEAD.size))
        return Frame(number, await reader.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def _exactly(peer: socket.socket, size: int) -> bytes | None:
    data = bytearray(size)
    view, got = memoryview(data), 0
    while got < size:
        read = peer.recv_into(view[got:])
        if not read:
            return None
        got += read
    return bytes(data)


class Hello(Struct, frozen=True):
    """The first frame of a worker; with `cannot`, it says why it is none."""

    pid: int
    cannot: str | None = None


class Compress(Struct, frozen=True, tag=True):
    request: CompressionRequest


class Count(Struct, frozen=True, tag=True):
    """Of tokens, as receipts count them."""

    text: str


class Retrieve(Struct, frozen=True, tag=True):
    job: RetrievalJob


class Compressed(Struct, frozen=True, tag=True):
    result: CompressionResult


class Counted(Struct, frozen=True, tag=True):
    tokens: int


class Retrieved(Struct, frozen=True, tag=True):
    answer: Answer


class Failed(Struct, frozen=True, tag=True):
    fault: CompressionFault


Job = Compress | Count | Retrieve
Done = Compressed | Counted | Retrieved | Failed

# Scores may be numbers of numpy.
_ENCODER = Encoder(enc_hook=lambda value: value.item())
_HELLO, _JOB, _DONE = Decoder(Hello), Decoder(Job), Decoder[Done](Done)


def packed(message: Hello | Job | Done) -> bytes:
    """Raises `UnicodeEncodeError` for half of a surrogate pair, `OverflowError` for an integer of more than 64 bits."""
    return _ENCODER.encode(message)


def hello_of(payload: bytes) -> Hello:
    return _HELLO.decode(payload)


def job_of(payload: bytes) -> Job:
    job: Job = _JOB.decode(payload)
    return job


def done_of(payload: bytes) -> Any:
    """An answer. Raises a fault as its error."""
    done = _DONE.decode(payload)
    if isinstance(done, Failed):
        raise done.fault.error()
    return done
