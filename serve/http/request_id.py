"""The correlation id of a request: the caller's where it can be used, else a new one."""

from __future__ import annotations

from serve.http.fresh_id import fresh_id

MAX_LENGTH = 128


def accept_request_id(given: bytes | None) -> str:
    """Return the caller's id, or a new one when it is absent, empty, too long or not printable ASCII."""
    if given is not None and 0 < len(given) <= MAX_LENGTH and all(0x20 <= byte < 0x7F for byte in given):
        return given.decode("ascii")
    return f"req_{fresh_id()}"
