"""Months whose events are in files: what remains of them here, and that none of their events comes unnoticed."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

SUMS = (
    "requests",
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "cost_nano_usd",
    "written_off_nano_usd",
    "tokens_saved",
    "saved_nano_usd",
    "compression_nano_usd",
)
KEY = (
    ("archived_month", 7),
    ("workspace_id", 32),
    ("day", 10),
    ("month", 7),
    ("project_id", 32),
    ("key_id", 16),
    ("model_id", 256),
    ("route", 32),
)
IS_LATE = (
    "NEW.event_id < (SELECT max(until_id) FROM archived_months) "
    "AND NOT EXISTS (SELECT 1 FROM late_events WHERE event_id = NEW.event_id)"
)
IS_BEING_DROPPED = (
    "EXISTS (SELECT 1 FROM archived_months WHERE state = 'dropping' "
    "AND from_id <= OLD.event_id AND OLD.event_id < until_id)"
)
ARCHIVED = "its month is archived, and takes no more usage events"
APPEND_ONLY = "usage_events is append-only"


def upgrade() -> None:
    _create_months()
    op.create_table(
        "archived_days",
        *(sa.Column(name, sa.String(chars), nullable=False) for name, chars in KEY),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in SUMS),
        sa.PrimaryKeyConstraint(*(name for name, _ in KEY), name="pk_archived_days"),
        sa.ForeignKeyConstraint(
            ["archived_month"], ["archived_months.month"], name="fk_archived_days_archived_month"
        ),
    )
    op.create_index("ix_archived_days_workspace_id", "archived_days", ["workspace_id", "day"])
    op.create_table(
        "archived_refunds",
        sa.Column("event_id", sa.String(32), nullable=False),
        sa.Column("workspace_id", sa.String(32), nullable=False),
        sa.Column("charged_nano_usd", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("event_id", name="pk_archived_refunds"),
    )
    op.create_table(
        "late_events",
        sa.Column("event_id", sa.String(32), nullable=False),
        sa.Column("admitted_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("event_id", name="pk_late_events"),
    )
    # Stretches end with a month from here on: the next reconcile takes them anew.
    op.execute("DELETE FROM checkpoint_sums")
    op.execute("DELETE FROM event_checkpoints")
    if op.get_bind().dialect.name == "sqlite":
        _guard_on_sqlite()
    else:
        _guard_on_postgresql()


def _create_months() -> None:
    op.create_table(
        "archived_months",
        sa.Column("month", sa.String(7), nullable=False),
        sa.Column("from_id", sa.String(32), nullable=False),
        sa.Column("until_id", sa.String(32), nullable=False),
        sa.Column("state", sa.String(8), nullable=False),
        sa.Column("sealed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("archived_at", sa.DateTime(timezone=True)),
        sa.Column("events", sa.BigInteger),
        sa.Column("charged_nano_usd", sa.BigInteger),
        sa.Column("written_off_nano_usd", sa.BigInteger),
        sa.Column("last_settled_at", sa.DateTime(timezone=True)),
        sa.Column("manifest", sa.Text),
        sa.PrimaryKeyConstraint("month", name="pk_archived_months"),
        sa.CheckConstraint("state IN ('sealed', 'dropping', 'dropped')", name="ck_archived_months_state"),
        sa.CheckConstraint("(state = 'sealed') = (manifest IS NULL)", name="ck_archived_months_manifest"),
    )


def _guard_on_sqlite() -> None:
    # After, so that an event that is there already is none that comes late.
    op.execute(
        f"CREATE TRIGGER usage_events_late AFTER INSERT ON usage_events WHEN {IS_LATE} "
        f"BEGIN SELECT RAISE(ABORT, '{ARCHIVED}'); END"
    )
    op.execute("DROP TRIGGER usage_events_no_delete")
    op.execute(
        f"CREATE TRIGGER usage_events_no_delete BEFORE DELETE ON usage_events WHEN NOT {IS_BEING_DROPPED} "
        f"BEGIN SELECT RAISE(ABORT, '{APPEND_ONLY}'); END"
    )


def _guard_on_postgresql() -> None:
    _create_function("usage_events_late", f"IF {IS_LATE} THEN {_raise(ARCHIVED)} END IF; RETURN NULL;")
    op.execute(
        "CREATE TRIGGER usage_events_late AFTER INSERT ON usage_events "
        "FOR EACH ROW EXECUTE FUNCTION usage_events_late()"
    )
    # Statements know no rows: while a month is dropped they may delete, and each row is looked at by itself.
    op.execute(
        "CREATE OR REPLACE FUNCTION usage_events_append_only() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF TG_OP = 'DELETE' AND EXISTS (SELECT 1 FROM archived_months WHERE state = 'dropping') "
        f"THEN RETURN NULL; END IF; {_raise(APPEND_ONLY)} END $$"
    )
    _create_function(
        "usage_events_dropped", f"IF {IS_BEING_DROPPED} THEN RETURN OLD; END IF; {_raise(APPEND_ONLY)}"
    )
    op.execute(
        "CREATE TRIGGER usage_events_no_delete BEFORE DELETE ON usage_events "
        "FOR EACH ROW EXECUTE FUNCTION usage_events_dropped()"
    )


def _create_function(name: str, body: str) -> None:
    op.execute(f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$")


def _raise(message: str) -> str:
    return f"RAISE EXCEPTION '{message}' USING ERRCODE = 'integrity_constraint_violation';"
