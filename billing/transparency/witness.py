"""Asks a witness, by C2SP's tlog-witness, to cosign the log's newest checkpoint: who has its key then knows that
everybody is shown one log. What it answers is verified before anybody sees it."""

import base64
from functools import partial

import aiohttp
from sqlalchemy import Connection

from billing.errors import BillingError
from billing.store.database import Database, PatientWork, use_one_snapshot
from billing.transparency import log_sql
from billing.transparency.cosigned import is_cosigned
from billing.transparency.log_sql import Head, LostRace
from billing.transparency.notes import SIGNATURE_PREFIX, Verifier

SIZE_TYPE = "text/x.tlog.size"
TIMEOUT_S = 10.0
MOST_BYTES = 16_384


class WitnessRefused(BillingError):
    """The witness cosigned nothing; the message has what it said."""


class Witness:
    """One witness of this log. `timeout_s` bounds each of its answers."""

    def __init__(
        self, database: Database, verifier: Verifier, url: str, *, timeout_s: float = TIMEOUT_S
    ) -> None:
        self._database = database
        self._verifier = verifier
        self._url = f"{url.rstrip('/')}/add-checkpoint"
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        # Leaves of the last checkpoint that it cosigned, as far as is known here: it says so where that is wrong.
        self._size = 0

    async def once(self) -> None:
        """Have the newest checkpoint cosigned, unless it is. Raises `LedgerUnavailable`, `LogDamaged` and
        `WitnessRefused`."""
        head = await self._database.read(log_sql.head)
        if not head.note or head.size == 0 or is_cosigned(head.note, self._verifier):
            return
        try:
            note = self._cosigned(head, await self._asked(head))
            signing = partial(log_sql.sign, of=head, note=note, at=head.signed_at)
            await self._database.write(PatientWork(signing))
        except LostRace:
            # It has grown meanwhile: the next round asks for that one.
            return

    async def _asked(self, head: Head) -> str:
        """Its cosignatures, as lines. Raises `WitnessRefused` and `LostRace`."""
        for _ in range(2):
            body = await self._database.read(partial(_request, of=head, old=self._size))
            status, kind, answer = await self._posted(body)
            if status == 200:
                self._size = head.size
                return answer
            if status != 409 or kind != SIZE_TYPE or (size := _size(answer)) == self._size:
                raise WitnessRefused(f"the witness {self._verifier.name} answered {status}: {answer[:200]!r}")
            if size > head.size:
                raise WitnessRefused(
                    f"the witness {self._verifier.name} has seen {size} leaves of this log, which has {head.size}: "
                    "was the ledger restored from a backup?"
                )
            self._size = size
        raise WitnessRefused(f"the witness {self._verifier.name} says another size each time")

    async def _posted(self, body: str) -> tuple[int, str, str]:
        jar = aiohttp.DummyCookieJar()
        try:
            async with (
                aiohttp.ClientSession(timeout=self._timeout, cookie_jar=jar) as session,
                session.post(self._url, data=body.encode(), allow_redirects=False) as reply,
            ):
                answer = await _read(reply)
                return reply.status, reply.content_type, answer
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            raise WitnessRefused(f"the witness {self._verifier.name} gave no answer: {error!r}") from error

    def _cosigned(self, head: Head, answer: str) -> str:
        """The checkpoint with its cosignature alone. Raises `WitnessRefused`."""
        begin = f"{SIGNATURE_PREFIX}{self._verifier.name} "
        for line in answer.splitlines():
            note = f"{head.note}{line}\n"
            if line.startswith(begin) and is_cosigned(note, self._verifier):
                return note
        raise WitnessRefused(f"the witness {self._verifier.name} answered without its signature")


def _request(connection: Connection, *, of: Head, old: int) -> str:
    """Raises `LostRace` where the log has grown, so that its proof would be of another tree."""
    use_one_snapshot(connection)
    if log_sql.head(connection) != of:
        raise LostRace("the log has grown meanwhile")
    tree = log_sql.read_tree(connection)
    path = tree.consistency(old) if 0 < old < of.size else []
    lines = [f"old {old}", *(base64.b64encode(one).decode() for one in path), "", of.note]
    return "\n".join(lines)


def _size(answer: str) -> int:
    """Raises `WitnessRefused`."""
    text = answer.removesuffix("\n")
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise WitnessRefused(f"the witness says that it knows {text[:40]!r} leaves")
    return int(text)


async def _read(reply: aiohttp.ClientResponse) -> str:
    """Raises `ValueError` for what is too long or no text."""
    found = bytearray()
    while piece := await reply.content.read(MOST_BYTES + 1 - len(found)):
        found += piece
        if len(found) > MOST_BYTES:
            raise ValueError(f"more than {MOST_BYTES} bytes")
    return found.decode()
