"""Messages through a worker's socket, a small JSON header and blobs of bytes: requests, results and faults.

Nothing in them is code.
"""

import asyncio
import socket
import struct
from array import array
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from itertools import chain
from typing import Any

import orjson

from compression.calibration.estimate import Calibration
from compression.flags import Example, Flag
from compression.pipeline.request import (
    CompressionRequest,
    CompressionResult,
    Receipt,
    Size,
    Sized,
    UnitScore,
)
from compression.pipeline.served import CompressionFault
from compression.retrieval.job import Answer, RetrievalJob, Text
from compression.source.units import Slice

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
        """The bytes before the blobs. Raises `TypeError` for what JSON cannot say: an integer of more than 64 bits,
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


COMPRESS, COUNT, CANCEL = "compress", "count", "cancel"
_REQUEST_TEXTS = ("query", "input")
# `sizes` in a header are those of the message's own parts.
_OTHER_SIZES = "other_sizes"
_REQUEST_OPTIONS = tuple(
    field.name for field in fields(CompressionRequest) if field.name not in (*_REQUEST_TEXTS, "sizes")
)
# The check of the request refuses a lone surrogate and names its position; it must get there first.
_ANY_TEXT = "surrogatepass"
_OFFSETS = "q"


def request_message(request: CompressionRequest) -> Message:
    header = {"do": COMPRESS, **{name: getattr(request, name) for name in _REQUEST_OPTIONS}}
    header[_OTHER_SIZES] = [asdict(size) for size in request.sizes]
    return Message(header, (text_to(request.query), text_to(request.input)))


def request_of(message: Message) -> CompressionRequest:
    query, text = map(text_from, message.blobs)
    options = {name: message.header[name] for name in _REQUEST_OPTIONS}
    sizes = tuple(Size(**size) for size in message.header[_OTHER_SIZES])
    return CompressionRequest(query, text, **{**options, "known": tuple(options["known"]), "sizes": sizes})


def count_message(text: str) -> Message:
    return Message({"do": COUNT}, (text_to(text),))


def text_of(message: Message) -> str:
    (data,) = message.blobs
    return text_from(data)


def tokens_message(tokens: int) -> Message:
    return Message({"tokens": tokens})


def result_message(result: CompressionResult) -> Message:
    header = {
        "receipt": asdict(result.receipt),
        "unit_scores": [asdict(one) for one in result.unit_scores],
        _OTHER_SIZES: [asdict(one.receipt) for one in result.sizes],
    }
    kept = [_offsets(result.kept), *(_offsets(one.kept) for one in result.sizes)]
    return Message(header, (result.output.encode(), *kept))


def _offsets(kept: Sequence[Slice]) -> bytes:
    return array(_OFFSETS, chain.from_iterable(kept)).tobytes()


def _slices(data: bytes) -> tuple[Slice, ...]:
    offsets = array(_OFFSETS, data)
    return tuple(map(Slice, offsets[::2], offsets[1::2]))


def fault_message(fault: CompressionFault) -> Message:
    return Message({"fault": asdict(fault)})


def result_of(message: Message) -> CompressionResult:
    """Raises a fault as its error."""
    raise_fault(message)
    output, kept, *others = message.blobs
    sizes = zip(message.header[_OTHER_SIZES], others, strict=True)
    return CompressionResult(
        output=output.decode(),
        receipt=_receipt(message.header["receipt"]),
        kept=_slices(kept),
        unit_scores=tuple(UnitScore(**one) for one in message.header["unit_scores"]),
        sizes=tuple(Sized(_receipt(receipt), _slices(offsets)) for receipt, offsets in sizes),
    )


def tokens_of(message: Message) -> int:
    """Raises a fault as its error."""
    raise_fault(message)
    return int(message.header["tokens"])


def raise_fault(message: Message) -> None:
    """Raise the fault that it holds, as its error."""
    if "fault" in message.header:
        raise CompressionFault(**message.header["fault"]).error()


def _receipt(fields: dict[str, Any]) -> Receipt:
    flags = [
        Flag(**{**flag, "examples": tuple(Example(**one) for one in flag["examples"])})
        for flag in fields["risk_flags"]
    ]
    calibration = fields["calibration"] and Calibration(**fields["calibration"])
    return Receipt(**{**fields, "risk_flags": tuple(flags), "calibration": calibration})


def text_to(text: str) -> bytes:
    return text.encode("utf-8", _ANY_TEXT)


def text_from(data: bytes) -> str:
    return data.decode("utf-8", _ANY_TEXT)


RETRIEVE = "retrieve"
_JOB_TEXTS = ("texts", "queries")
_JOB_OPTIONS = tuple(field.name for field in fields(RetrievalJob) if field.name not in _JOB_TEXTS)
_TOKENS = "I"


def job_message(job: RetrievalJob) -> Message:
    """Texts follow the queries; those that are tokens are numbered in the header."""
    header = {
        "do": RETRIEVE,
        "queries": len(job.queries),
        "tokens": [at for at, text in enumerate(job.texts) if not isinstance(text, str)],
        **{name: getattr(job, name) for name in _JOB_OPTIONS},
    }
    return Message(header, (*map(text_to, job.queries), *map(_blob, job.texts)))


def job_of(message: Message) -> RetrievalJob:
    count, tokens = message.header["queries"], set(message.header["tokens"])
    queries, texts = message.blobs[:count], message.blobs[count:]
    return RetrievalJob(
        texts=tuple(
            tuple(array(_TOKENS, blob)) if at in tokens else text_from(blob) for at, blob in enumerate(texts)
        ),
        queries=tuple(map(text_from, queries)),
        **{name: message.header[name] for name in _JOB_OPTIONS},
    )


def answer_message(answer: Answer) -> Message:
    return Message({"tokens": answer.tokens, "width": answer.width}, (answer.data,))


def answer_of(message: Message) -> Answer:
    """Raises a fault as its error."""
    raise_fault(message)
    (data,) = message.blobs
    return Answer(message.header["tokens"], message.header["width"], data)


def _blob(text: Text) -> bytes:
    return text_to(text) if isinstance(text, str) else array(_TOKENS, text).tobytes()
