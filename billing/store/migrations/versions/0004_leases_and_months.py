"""Leases of holds, the months of charges, what was written off, and no more text of customers in receipts."""

import sqlalchemy as sa
from alembic import op

from billing.usage import without_text

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

AT_ONCE = 500


def upgrade() -> None:
    # Constant defaults are kept in the catalog by both databases, so existing rows are not touched.
    op.add_column("holds", sa.Column("owner", sa.String(32), nullable=False, server_default=""))
    op.add_column("holds", sa.Column("expires_at", sa.Double, nullable=False, server_default="0"))
    op.add_column("usage_events", sa.Column("offline", sa.Boolean, nullable=False, server_default=sa.false()))
    # As text, since Alembic would rebuild the table on SQLite to add a constraint.
    op.execute(
        "ALTER TABLE usage_events ADD COLUMN written_off_nano_usd BIGINT DEFAULT 0 NOT NULL "
        "CONSTRAINT ck_usage_events_written_off CHECK (written_off_nano_usd BETWEEN 0 AND cost_nano_usd)"
    )
    op.add_column("usage_events", sa.Column("month", sa.String(7)))
    _create_months()
    _create_clock()
    _scrub_receipts()


def _is_sqlite() -> bool:
    return bool(op.get_bind().dialect.name == "sqlite")


def _create_months() -> None:
    """With what every workspace was charged in each month but the one that its row counts."""
    op.create_table(
        "workspace_months",
        sa.Column("workspace_id", sa.String(32), nullable=False),
        sa.Column("month", sa.String(7), nullable=False),
        sa.Column("posted_nano_usd", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("workspace_id", "month", name="pk_workspace_months"),
        sa.ForeignKeyConstraint(["workspace_id"], ["workspaces.id"], name="fk_workspace_months_workspace_id"),
    )
    month = (
        "substr(e.settled_at, 1, 7)" if _is_sqlite() else "to_char(timezone('UTC', e.settled_at), 'YYYY-MM')"
    )
    op.execute(
        "INSERT INTO workspace_months (workspace_id, month, posted_nano_usd) "
        f"SELECT e.workspace_id, {month}, sum(e.cost_nano_usd) "
        "FROM usage_events e JOIN workspaces w ON w.id = e.workspace_id "
        f"WHERE {month} <> w.month GROUP BY e.workspace_id, {month}"
    )


def _create_clock() -> None:
    """The database's clock, by name: seconds since 1970, and the calendar month in UTC. On SQLite each connection
    brings both (`billing/store/sqlite.py`), since there the clock is the machine's."""
    if _is_sqlite():
        return
    op.execute(
        "CREATE OR REPLACE FUNCTION pith_now() RETURNS double precision LANGUAGE sql VOLATILE AS "
        "$$ SELECT extract(epoch FROM clock_timestamp())::double precision $$"
    )
    op.execute(
        "CREATE OR REPLACE FUNCTION pith_month() RETURNS text LANGUAGE sql VOLATILE AS "
        "$$ SELECT to_char(timezone('UTC', to_timestamp(pith_now())), 'YYYY-MM') $$"
    )


def _scrub_receipts() -> None:
    """The one change that is ever made to a usage event: what a customer wrote is taken out of its receipt."""
    if _is_sqlite():
        # What is overwritten is not left in free pages of the file.
        op.execute("PRAGMA secure_delete = ON")
        op.execute("DROP TRIGGER usage_events_no_update")
        _rewrite_receipts()
        op.execute(
            "CREATE TRIGGER usage_events_no_update BEFORE UPDATE ON usage_events "
            "BEGIN SELECT RAISE(ABORT, 'usage_events is append-only'); END"
        )
        return
    op.execute("ALTER TABLE usage_events DISABLE TRIGGER usage_events_no_change")
    _rewrite_receipts()
    op.execute("ALTER TABLE usage_events ENABLE TRIGGER usage_events_no_change")


def _rewrite_receipts() -> None:
    connection = op.get_bind()
    events = sa.table("usage_events", sa.column("event_id"), sa.column("receipt"))
    after = ""
    while rows := connection.execute(
        sa.select(events.c.event_id, events.c.receipt)
        .where(events.c.event_id > after, events.c.receipt.is_not(None))
        .order_by(events.c.event_id)
        .limit(AT_ONCE)
    ).all():
        after = rows[-1].event_id
        for event_id, receipt in rows:
            scrubbed = without_text(receipt)
            if scrubbed != receipt:
                connection.execute(
                    sa.update(events).where(events.c.event_id == event_id).values(receipt=scrubbed)
                )
