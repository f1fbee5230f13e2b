"""The reply to a request of any kind that is paid for: let in, worked for and charged while it is sent."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from logging import Logger

from starlette.responses import Response
from starlette.types import Send

from billing.caller import Caller
from billing.store.database import Work
from serve.http.replies import Client, WorkingReply
from serve.money.admission import Admissions, Admitted
from serve.money.held_request import AlsoWrite, Receipt
from serve.money.hold import TokenTerms

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


class ChargedReply(WorkingReply):
    """Chats in all dialects, compressions, embeddings, rerankings, and lines of batches.

    `route` is what usage events call the request, `terms` the most that each of its parts can use. A kind does its work
    in `answer`, where it holds these, computes and settles.
    """

    # For a line of a batch, which is in one piece: what is written with its settlement.
    record: Record | None = None

    def __init__(
        self,
        admissions: Admissions,
        caller: Caller,
        request_id: str,
        route: str,
        terms: Sequence[TokenTerms],
        logger: Logger,
    ) -> None:
        super().__init__(request_id, logger)
        self._admissions = admissions
        self._caller = caller
        self._route = route
        self._terms = terms

    def admitted(self) -> AbstractAsyncContextManager[Admitted]:
        """The request within its project's limits. Raises what `Admissions.admit` raises."""
        return self._admissions.admit(self._caller, self.request_id, self._terms, route=self._route)

    async def work(self, send: Send, client: Client) -> Response | None:
        async with self.admitted() as admitted:
            return await self.answer(admitted, client)

    async def answer(self, admitted: Admitted, client: Client) -> Response:
        """The reply in one piece, once it is charged. Raises what the work raises, and what `Admitted.hold` and
        `HeldRequest.settle` do."""
        raise NotImplementedError

    def also_write(self, pieces: Callable[[Receipt], Iterable[bytes]]) -> AlsoWrite | None:
        """With a settlement: the reply, whose pieces follow from what was charged. None where it is sent."""
        record = self.record
        return None if record is None else lambda receipt: record(pieces(receipt), receipt)
