"""The transparency log: what waits for it, which triggers fill, and its tree. All rows that are there wait for it."""

import hashlib
from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

# By table, the column that names a row.
LOGGED = {"usage_events": "event_id", "adjustments": "id"}
# Events that an archive has already; what is left of them in the ledger is about to be deleted.
IS_BEING_DROPPED = (
    "EXISTS (SELECT 1 FROM archived_months WHERE state = 'dropping' "
    "AND from_id <= usage_events.event_id AND usage_events.event_id < until_id)"
)


def upgrade() -> None:
    _create_tables()
    for table, id_ in LOGGED.items():
        _note_rows(table, id_)
    op.execute(
        f"INSERT INTO log_pending (id) SELECT event_id FROM usage_events WHERE NOT {IS_BEING_DROPPED} "
        "UNION ALL SELECT id FROM adjustments"
    )
    op.add_column(
        "archived_months", sa.Column("in_log", sa.Boolean(), server_default=sa.true(), nullable=False)
    )
    months = sa.table("archived_months", sa.column("state"), sa.column("in_log"))
    op.execute(months.update().where(months.c.state != "sealed").values(in_log=False))


def _create_tables() -> None:
    op.create_table(
        "log_pending",
        sa.Column("id", sa.String(40), nullable=False),
        _key("log_pending", "id"),
        sqlite_with_rowid=False,
    )
    head = op.create_table(
        "log_head",
        _number("id", sa.Integer()),
        _number("size"),
        sa.Column("root", sa.LargeBinary(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("signed_at", sa.DateTime(timezone=True), nullable=False),
        _key("log_head", "id"),
        sa.CheckConstraint("id = 1", name="ck_log_head_one"),
    )
    op.bulk_insert(
        head,
        [
            {
                "id": 1,
                "size": 0,
                "root": hashlib.sha256(b"").digest(),
                "note": "",
                "signed_at": datetime.now(UTC),
            }
        ],
    )
    entries = sa.Column("entries", sa.LargeBinary(), nullable=False)
    op.create_table("log_bundles", _number("number"), entries, _key("log_bundles", "number"))
    op.create_table(
        "log_tiles",
        _number("level", sa.Integer()),
        _number("number"),
        sa.Column("hashes", sa.LargeBinary(), nullable=False),
        _key("log_tiles", "level", "number"),
    )
    op.create_table(
        "log_minutes",
        _number("minute"),
        _number("bundle"),
        _key("log_minutes", "minute", "bundle"),
        sqlite_with_rowid=False,
    )
    if not _is_sqlite():
        # It would try to compress them, and hashes cannot be compressed.
        op.execute("ALTER TABLE log_bundles ALTER COLUMN entries SET STORAGE EXTERNAL")
        op.execute("ALTER TABLE log_tiles ALTER COLUMN hashes SET STORAGE EXTERNAL")


def _number(name: str, type_: sa.types.TypeEngine[int] | None = None) -> sa.Column[int]:
    return sa.Column(name, type_ or sa.BigInteger(), nullable=False, autoincrement=False)


def _key(table: str, *columns: str) -> sa.PrimaryKeyConstraint:
    return sa.PrimaryKeyConstraint(*columns, name=f"pk_{table}")


def _note_rows(table: str, id_: str) -> None:
    """From now on, in the transaction that writes a row, whichever release writes it."""
    noting = f"INSERT INTO log_pending (id) VALUES (NEW.{id_});"
    run = op.get_bind().exec_driver_sql
    if _is_sqlite():
        run(f"CREATE TRIGGER {table}_log AFTER INSERT ON {table} BEGIN {noting} END")
        return
    run(
        f"CREATE FUNCTION {table}_logged() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN {noting} RETURN NULL; END $$"
    )
    run(f"CREATE TRIGGER {table}_log AFTER INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION {table}_logged()")


def _is_sqlite() -> bool:
    return bool(op.get_bind().dialect.name == "sqlite")
