"""The tables of the transparency log, as SQLAlchemy Core sees them.

Triggers of the database note each usage event and each adjustment in `log_pending`, in its own transaction, whoever
writes it (docs/adr/0048-a-log-that-others-can-check.md).
"""

from sqlalchemy import BigInteger, Column, Integer, LargeBinary, String, Table, Text

from billing.store.stored_types import UtcDateTime, metadata

# Ids of usage events and adjustments that are not in the tree yet.
log_pending = Table("log_pending", metadata, Column("id", String(40), primary_key=True))

# One row: the tree as it was last signed.
log_head = Table(
    "log_head",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("size", BigInteger, nullable=False),
    Column("root", LargeBinary, nullable=False),
    # The checkpoint, a signed note. Empty until a server has signed one.
    Column("note", Text, nullable=False),
    # By the clock of the server that signed it.
    Column("signed_at", UtcDateTime, nullable=False),
)

# Entries of leaves from index 256 * `number` on, one after the other, 32 bytes each: 256 of them, but for the last.
log_bundles = Table(
    "log_bundles",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("entries", LargeBinary, nullable=False),
)

# Hashes of full tiles of the level below, one after the other. Those of level 0 are computed from the entries.
log_tiles = Table(
    "log_tiles",
    metadata,
    Column("level", Integer, primary_key=True, autoincrement=False),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("hashes", LargeBinary, nullable=False),
)

# In which bundles entries are whose ids begin with a minute, in minutes since 1970; -1 for ids that begin with no time.
log_minutes = Table(
    "log_minutes",
    metadata,
    Column("minute", BigInteger, primary_key=True, autoincrement=False),
    Column("bundle", BigInteger, primary_key=True, autoincrement=False),
)
