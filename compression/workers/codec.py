"""Requests, results and faults as messages, and back."""

from array import array
from dataclasses import asdict, fields
from itertools import chain
from typing import Any

from compression.calibration.estimate import Calibration
from compression.choosing.assembly import Slice
from compression.flags import Example, Flag
from compression.pipeline.receipt import Receipt
from compression.pipeline.request import CompressionRequest, CompressionResult, UnitScore
from compression.pipeline.served import CompressionFault
from compression.workers.message import Message

COMPRESS, COUNT, CANCEL = "compress", "count", "cancel"
_TEXTS = ("query", "input")
_OPTIONS = tuple(field.name for field in fields(CompressionRequest) if field.name not in _TEXTS)
# The check of the request refuses a lone surrogate and names its position; it must get there first.
_ANY_TEXT = "surrogatepass"
_OFFSETS = "q"


def request_message(request: CompressionRequest) -> Message:
    header = {"do": COMPRESS, **{name: getattr(request, name) for name in _OPTIONS}}
    return Message(header, (_bytes(request.query), _bytes(request.input)))


def request_of(message: Message) -> CompressionRequest:
    query, text = map(_text, message.blobs)
    return CompressionRequest(query, text, **{name: message.header[name] for name in _OPTIONS})


def count_message(text: str) -> Message:
    return Message({"do": COUNT}, (_bytes(text),))


def text_of(message: Message) -> str:
    (data,) = message.blobs
    return _text(data)


def tokens_message(tokens: int) -> Message:
    return Message({"tokens": tokens})


def result_message(result: CompressionResult) -> Message:
    kept = array(_OFFSETS, chain.from_iterable(result.kept))
    header = {"receipt": asdict(result.receipt), "unit_scores": [asdict(one) for one in result.unit_scores]}
    return Message(header, (result.output.encode(), kept.tobytes()))


def fault_message(fault: CompressionFault) -> Message:
    return Message({"fault": asdict(fault)})


def result_of(message: Message) -> CompressionResult:
    """Raises a fault as its error."""
    _raise_fault(message)
    output, offsets = message.blobs
    kept = array(_OFFSETS, offsets)
    return CompressionResult(
        output=output.decode(),
        receipt=_receipt(message.header["receipt"]),
        kept=tuple(map(Slice, kept[::2], kept[1::2])),
        unit_scores=tuple(UnitScore(**one) for one in message.header["unit_scores"]),
    )


def tokens_of(message: Message) -> int:
    """Raises a fault as its error."""
    _raise_fault(message)
    return int(message.header["tokens"])


def _raise_fault(message: Message) -> None:
    if "fault" in message.header:
        raise CompressionFault(**message.header["fault"]).error()


def _receipt(fields: dict[str, Any]) -> Receipt:
    flags = [
        Flag(**{**flag, "examples": tuple(Example(**one) for one in flag["examples"])})
        for flag in fields["risk_flags"]
    ]
    calibration = fields["calibration"] and Calibration(**fields["calibration"])
    return Receipt(**{**fields, "risk_flags": tuple(flags), "calibration": calibration})


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", _ANY_TEXT)


def _text(data: bytes) -> str:
    return data.decode("utf-8", _ANY_TEXT)
