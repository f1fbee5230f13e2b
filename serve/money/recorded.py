"""Replies that are written down rather than sent: in the transaction that settles them, so that both are there or
neither is."""

from collections.abc import Callable, Iterable
from typing import Protocol

from starlette.responses import Response
from starlette.types import Send

from billing.store.database import Work
from serve.http.replies import Client
from serve.money.held_request import Receipt

# Of a reply's body. It is a row of the ledger until its batch has ended, and is in memory as a whole.
MOST_RECORDED_BYTES = 2**20
# What is to be written of a reply in one piece, of the pieces of its body and of what it was charged.
Record = Callable[[Iterable[bytes], Receipt], Work[None]]


class RecordTooLarge(Exception):
    """The reply has more bytes than are written down."""

    def __init__(self) -> None:
        super().__init__(
            f"the reply has more than {MOST_RECORDED_BYTES} bytes and is not kept; it is charged; ask for less"
        )


def recordable(pieces: Iterable[bytes]) -> bytes:
    """All of them. Raises `RecordTooLarge` as soon as they are too many."""
    body = bytearray()
    for piece in pieces:
        body += piece
        if len(body) > MOST_RECORDED_BYTES:
            raise RecordTooLarge
    return bytes(body)


class RecordedReply(Protocol):
    """A reply in one piece. With a `record`, what that gives is written with its settlement."""

    record: Record | None

    async def work(self, send: Send, client: Client) -> Response | None: ...
