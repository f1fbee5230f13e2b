"""The trace that a caller's request is part of, as W3C Trace Context has it: `traceparent` and `tracestate`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

# Of a later version more may follow.
_TRACEPARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[\x21-\x7e]{0,200})?")
LONGEST_STATE = 512


@dataclass(frozen=True, slots=True)
class RemoteParent:
    """The caller's span. `state` is empty where it is missing, too long or not plain text."""

    trace_id: str
    span_id: str
    is_sampled: bool
    state: str = ""


def remote_parent(headers: Iterable[tuple[bytes, bytes]]) -> RemoteParent | None:
    """What the headers name, their names in lower case; None where that is nothing, or not valid."""
    parents, states = [], []
    for name, value in headers:
        if name == b"traceparent":
            parents.append(value)
        elif name == b"tracestate":
            states.append(value)
    if len(parents) != 1:
        return None
    found = _TRACEPARENT.fullmatch(parents[0].strip(b" \t"))
    if found is None:
        return None
    version, trace, span, flags, more = found.groups()
    if version == b"ff" or (version == b"00" and more) or not trace.strip(b"0") or not span.strip(b"0"):
        return None
    return RemoteParent(trace.decode(), span.decode(), bool(int(flags, 16) & 1), _state(states))


def _state(values: list[bytes]) -> str:
    state = b",".join(values)
    is_plain = len(state) <= LONGEST_STATE and all(0x20 <= letter < 0x7F for letter in state)
    return state.decode("ascii") if is_plain else ""
