"""The SQL of file stores: folders that have files, each known by the id that is kept in it, and whether a server still
reaches it."""

from sqlalchemy import Column, ColumnElement, Connection, select
from sqlalchemy.dialects import postgresql, sqlite

from billing.store.batch_tables import file_stores
from billing.store.database_clock import now_s

# Whoever reaches a store says so, and rewrites its row this often at the most.
SEEN_EVERY_S = 60.0
# Where nobody has said so for so long, the store is lost: others end its batches, and its files take no room.
LOST_AFTER_S = 86_400.0
_s = file_stores.c


def see(connection: Connection, store: str) -> None:
    """A server reaches the store now."""
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    added = dialect.insert(file_stores).values(id=store, seen_at=now_s())
    old = _s.seen_at <= now_s() - SEEN_EVERY_S
    connection.execute(
        added.on_conflict_do_update(index_elements=["id"], set_={"seen_at": now_s()}, where=old)
    )


def is_lost(store: "Column[str]") -> ColumnElement[bool]:
    """Whether no server reaches the store that the row names. So it is with rows from before there were stores."""
    seen = select(_s.id).where(_s.id == store, _s.seen_at > now_s() - LOST_AFTER_S)
    return ~seen.exists()
