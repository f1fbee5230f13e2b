"""What goes through a worker's socket: a small JSON header and blobs of bytes. Nothing in it is code."""

import asyncio
import socket
import struct
from dataclasses import dataclass
from typing import Any

import orjson

_LENGTH = struct.Struct("<I")
SIZES = "sizes"


@dataclass(frozen=True, slots=True)
class Message:
    """`header` holds what JSON can; long texts are blobs, so that megabytes need not be escaped and unescaped."""

    header: dict[str, Any]
    blobs: tuple[bytes, ...] = ()

    def packed(self, **also: Any) -> bytes:
        """The bytes to send, with more keys in the header. Raises as `head` does."""
        return b"".join((self.head(**also), *self.blobs))

    def head(self, **also: Any) -> bytes:
        """What stands before the blobs. Raises `TypeError` for what JSON cannot say: an integer of more than 64 bits,
        half of a surrogate pair."""
        sizes = [len(blob) for blob in self.blobs]
        header = orjson.dumps({**self.header, **also, SIZES: sizes}, option=orjson.OPT_SERIALIZE_NUMPY)
        return _LENGTH.pack(len(header)) + header


def read_from(peer: socket.socket) -> Message | None:
    """The next message, or None where the peer has closed."""
    length = _exactly(peer, _LENGTH.size)
    if length is None:
        return None
    header = _exactly(peer, *_LENGTH.unpack(length))
    if header is None:
        return None
    fields = orjson.loads(header)
    blobs = [_exactly(peer, size) for size in fields.pop(SIZES)]
    whole = tuple(blob for blob in blobs if blob is not None)
    return Message(fields, whole) if len(whole) == len(blobs) else None


async def read(reader: asyncio.StreamReader) -> Message | None:
    """The same from a stream."""
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        fields = orjson.loads(await reader.readexactly(length))
        blobs = tuple([await reader.readexactly(size) for size in fields.pop(SIZES)])
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return Message(fields, blobs)


def _exactly(peer: socket.socket, size: int) -> bytes | None:
    data = bytearray(size)
    view, got = memoryview(data), 0
    while got < size:
        read = peer.recv_into(view[got:])
        if not read:
            return None
        got += read
    return bytes(data)
