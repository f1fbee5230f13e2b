"""Reading the log at a checkpoint that a witness has cosigned."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import Connection

from billing.store.database import LongWork, use_one_snapshot
from billing.transparency import log_sql
from billing.transparency.notes import BadNote, Verifier, opened

T = TypeVar("T")
# How long a proof waits for what a witness that answers gives within a round.
PATIENCE_S, LOOK_EVERY_S = 10.0, 0.5


def is_cosigned(note: str, verifier: Verifier) -> bool:
    try:
        opened(note, verifier)
    except BadNote:
        return False
    return True


async def read_cosigned(
    read: Callable[[LongWork[Any]], Awaitable[Any]],
    work: Callable[[Connection], T],
    verifier: Verifier | None,
    *,
    patience_s: float = PATIENCE_S,
) -> T:
    """`work` in a snapshot whose checkpoint is cosigned; in any, once a witness that answers would have. Raises what
    `read` and `work` raise."""
    deadline = time.monotonic() + patience_s
    while verifier is not None and time.monotonic() < deadline:
        found: list[T] = await read(LongWork(partial(_if_cosigned, work=work, verifier=verifier)))
        if found:
            return found[0]
        await asyncio.sleep(LOOK_EVERY_S)
    anyway: T = await read(LongWork(work))
    return anyway


def _if_cosigned(connection: Connection, *, work: Callable[[Connection], T], verifier: Verifier) -> list[T]:
    """What is found, if its checkpoint is."""
    use_one_snapshot(connection)
    return [work(connection)] if is_cosigned(log_sql.head(connection).note, verifier) else []
