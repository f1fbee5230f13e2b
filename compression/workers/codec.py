"""Requests, results and faults as messages, and back."""

from array import array
from collections.abc import Sequence
from dataclasses import asdict, fields
from itertools import chain
from typing import Any

from compression.calibration.estimate import Calibration
from compression.choosing.assembly import Slice
from compression.flags import Example, Flag
from compression.pipeline.receipt import Receipt
from compression.pipeline.request import CompressionRequest, CompressionResult, UnitScore
from compression.pipeline.served import CompressionFault
from compression.pipeline.sizes import Size, Sized
from compression.workers.message import Message

COMPRESS, COUNT, CANCEL = "compress", "count", "cancel"
_TEXTS = ("query", "input")
# `sizes` in a header are those of the message's own parts.
_OTHER_SIZES = "other_sizes"
_OPTIONS = tuple(field.name for field in fields(CompressionRequest) if field.name not in (*_TEXTS, "sizes"))
# The check of the request refuses a lone surrogate and names its position; it must get there first.
_ANY_TEXT = "surrogatepass"
_OFFSETS = "q"


def request_message(request: CompressionRequest) -> Message:
    header = {"do": COMPRESS, **{name: getattr(request, name) for name in _OPTIONS}}
    header[_OTHER_SIZES] = [asdict(size) for size in request.sizes]
    return Message(header, (text_to(request.query), text_to(request.input)))


def request_of(message: Message) -> CompressionRequest:
    query, text = map(text_from, message.blobs)
    options = {name: message.header[name] for name in _OPTIONS}
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
