"""A ledger's log as tests read it: its leaves, and whether they are those of the ledger's rows."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy import Connection, insert, select

from billing.store.log_tables import log_bundles, log_pending
from billing.store.migration import newest_revision
from billing.store.schema import usage_events
from billing.transparency import log_sql
from billing.transparency.leaves import leaf
from billing.transparency.notes import Checkpoint, Signer, checkpoint, opened, signer
from billing.transparency.places import indices
from billing.transparency.sequencer import Sequencer
from billing.transparency.tree import HASH_BYTES
from tests.billing.conftest import PEPPER, event_row

if TYPE_CHECKING:
    from billing.caller import Caller
    from billing.store.database import Database
    from tests.billing.conftest import Books

SIGNER: Signer = signer(PEPPER, "example.com/log")
AT = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def sequencer(database: Database, *, by: Signer = SIGNER, revision: str | None = None) -> Sequencer:
    return Sequencer(database, by, revision=revision or newest_revision(), clock=lambda: AT)


async def add_events(books: Books, caller: Caller, number: int, *, at: datetime = AT) -> None:
    """Rows of their own, without the ledger's work for each."""
    rows = [event_row(caller, at, cost_nano_usd=1, request_id=f"r{n}") for n in range(number)]
    await books.database.write(lambda c: c.execute(insert(usage_events), rows) and None)


def leaves_of(connection: Connection) -> list[bytes]:
    """The entries of the tree, in their order."""
    size = log_sql.head(connection).size
    bundles = connection.scalars(select(log_bundles.c.entries).order_by(log_bundles.c.number)).all()
    held = b"".join(bundles)
    return [held[at : at + HASH_BYTES] for at in range(0, size * HASH_BYTES, HASH_BYTES)]


def due(connection: Connection) -> Counter[bytes]:
    """The entries of every row that does not wait."""
    pending = set(connection.scalars(select(log_pending.c.id)))
    found: Counter[bytes] = Counter()
    for table, id_ in log_sql.LOGGED:
        for row in connection.execute(select(table).where(id_.not_in(pending))).mappings():
            found[leaf(row).entry] += 1
    return found


def signed(connection: Connection, by: Signer = SIGNER) -> Checkpoint:
    return checkpoint(opened(log_sql.head(connection).note, by.verifier))


async def require_exact(database: Database) -> int:
    """Every row that does not wait is one leaf and nothing else is one, under the root that is signed; how many."""

    def compared(connection: Connection) -> int:
        leaves = leaves_of(connection)
        assert Counter(leaves) == due(connection)
        found = signed(connection)
        assert (found.size, found.root) == (len(leaves), log_sql.read_tree(connection).root())
        return len(leaves)

    return await database.read(compared)


async def pending(database: Database) -> int:
    return (await database.read(log_sql.status)).pending


async def index_of(database: Database, id_: str) -> int | None:
    def looked_up(connection: Connection) -> int | None:
        for table, key in log_sql.LOGGED:
            row = connection.execute(select(table).where(key == id_)).mappings().one_or_none()
            if row is not None:
                return indices(connection, {id_: leaf(row).entry}).get(id_)
        raise AssertionError(f"no row {id_}")

    return await database.read(partial(looked_up))
