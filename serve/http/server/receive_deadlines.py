"""Deadlines for what a client sends, checked now and then rather than by a timer for each request."""

from dataclasses import dataclass
from typing import Literal

from serve.http.server.refusals import BadHttp

Part = Literal["none", "head", "body"]
LOOK_EVERY_S = 0.5
# For the first bytes of a connection over a limit, which it is refused behind.
REFUSAL_WAIT_S = 1.0


@dataclass(frozen=True, slots=True)
class ReceiveTimes:
    """`idle_s` with nothing under way; `head_s` from a request's first byte to the end of its headers; for a body
    `body_s`, and one second more for each `body_bytes_per_s` of it that came."""

    idle_s: float
    head_s: float
    body_s: float
    body_bytes_per_s: int


def overdue(
    times: ReceiveTimes, part: Part, *, for_s: float, body_bytes: int, refusal: BadHttp | None
) -> BadHttp | None:
    """The refusal for a client that has spent `for_s` seconds on this part of its request; None if it is in time."""
    if refusal is not None:
        return refusal if for_s > REFUSAL_WAIT_S else None
    if part == "none":
        return BadHttp(408, f"no request for {times.idle_s:g} s") if for_s > times.idle_s else None
    if part == "head":
        late = for_s > times.head_s
        return BadHttp(408, f"the request's headers took longer than {times.head_s:g} s") if late else None
    if for_s > times.body_s + body_bytes / times.body_bytes_per_s:
        allowed = f"{times.body_s:g} s and one second for each {times.body_bytes_per_s} bytes"
        return BadHttp(
            408, f"the request's body came too slowly: {body_bytes} bytes, which may take {allowed}"
        )
    return None
