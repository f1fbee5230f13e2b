"""Sums of usage in all their columns, compared with the events by workspace and month."""

from functools import partial

from sqlalchemy import Connection

from billing.rollups.refill import WrongRow, months_of_sums, wrong_rows
from billing.store.database import Database, use_one_snapshot

MOST_NAMED = 1000


async def all_wrong_rows(database: Database) -> list[WrongRow]:
    """At most `MOST_NAMED`. Each month of a workspace is read in a snapshot of its own: its sums and its events are
    written together. Raises `LedgerUnavailable`."""
    found: list[WrongRow] = []
    for workspace_id, month in await database.read(months_of_sums):
        found += await database.read(partial(_of_one_moment, workspace_id=workspace_id, month=month))
        if len(found) >= MOST_NAMED:
            break
    return found[:MOST_NAMED]


def _of_one_moment(connection: Connection, *, workspace_id: str, month: str) -> list[WrongRow]:
    use_one_snapshot(connection)
    return wrong_rows(connection, workspace_id, month)
