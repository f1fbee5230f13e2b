"""Sums of usage events by day and by month, which the database keeps itself, and checkpoints of proven events."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

KEY = ("project_id", "key_id", "model_id", "route")
SUMS = (
    ("requests", "1"),
    ("prompt_tokens", "{e}.prompt_tokens"),
    ("completion_tokens", "{e}.completion_tokens"),
    ("cached_tokens", "{e}.cached_tokens"),
    ("cost_nano_usd", "{e}.cost_nano_usd - {e}.written_off_nano_usd"),
    ("written_off_nano_usd", "{e}.written_off_nano_usd"),
    ("tokens_saved", "coalesce({e}.original_tokens - {e}.prompt_tokens, 0)"),
    (
        "saved_nano_usd",
        "CASE WHEN {e}.written_off_nano_usd = 0 OR {e}.saved_nano_usd < 0 THEN {e}.saved_nano_usd ELSE 0 END",
    ),
    ("compression_nano_usd", "{e}.compression_nano_usd"),
)
SPANS = {"usage_days": ("day", 10), "usage_months": ("settled_month", 7)}


def upgrade() -> None:
    for table, (span, chars) in SPANS.items():
        _create_sums(table, span, chars)
    op.create_index("ix_usage_days_day", "usage_days", ["day"])
    _create_checkpoints()
    # Before what is there is added up: on PostgreSQL it keeps other servers from adding events until this is done.
    _create_trigger()
    for table in SPANS:
        _fill(table)
    # Of conversations that are compared, which are few, and read by month.
    op.create_index(
        "ix_usage_events_conversation",
        "usage_events",
        ["workspace_id", "month"],
        sqlite_where=sa.text("conversation IS NOT NULL"),
        postgresql_where=sa.text("conversation IS NOT NULL"),
    )


def _is_sqlite() -> bool:
    return bool(op.get_bind().dialect.name == "sqlite")


def _create_sums(table: str, span: str, chars: int) -> None:
    op.create_table(
        table,
        sa.Column("workspace_id", sa.String(32), nullable=False),
        sa.Column(span, sa.String(chars), nullable=False),
        sa.Column("month", sa.String(7), nullable=False),
        sa.Column("project_id", sa.String(32), nullable=False),
        sa.Column("key_id", sa.String(16), nullable=False),
        sa.Column("model_id", sa.String(256), nullable=False),
        sa.Column("route", sa.String(32), nullable=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name, _ in SUMS),
        sa.PrimaryKeyConstraint("workspace_id", span, "month", *KEY, name=f"pk_{table}"),
        sqlite_with_rowid=False,
    )


def _create_checkpoints() -> None:
    op.create_table(
        "event_checkpoints",
        sa.Column("from_id", sa.String(32), nullable=False),
        sa.Column("until_id", sa.String(32), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("digest", sa.String(64)),
        sa.Column("events", sa.BigInteger, nullable=False),
        sa.Column("read_number", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("from_id", name="pk_event_checkpoints"),
    )
    op.create_index("ix_event_checkpoints_read_number", "event_checkpoints", ["read_number"])
    op.create_table(
        "checkpoint_sums",
        sa.Column("from_id", sa.String(32), nullable=False),
        sa.Column("workspace_id", sa.String(32), nullable=False),
        sa.Column("month", sa.String(7), nullable=False),
        sa.Column("events", sa.BigInteger, nullable=False),
        sa.Column("charged_nano_usd", sa.BigInteger, nullable=False),
        sa.Column("written_off_nano_usd", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("from_id", "workspace_id", "month", name="pk_checkpoint_sums"),
        sa.ForeignKeyConstraint(
            ["from_id"], ["event_checkpoints.from_id"], name="fk_checkpoint_sums_from_id"
        ),
    )


def _create_trigger() -> None:
    """A trigger, so that what a server of the release before writes is added up too."""
    body = ";\n".join([*(_adding(table) for table in SPANS), _MAKE_UNPROVEN]) + ";"
    if _is_sqlite():
        op.execute(f"CREATE TRIGGER usage_events_sums AFTER INSERT ON usage_events BEGIN {body} END")
        return
    op.execute(
        "CREATE FUNCTION usage_events_added() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN {body} RETURN NULL; END $$"
    )
    op.execute(
        "CREATE TRIGGER usage_events_sums AFTER INSERT ON usage_events "
        "FOR EACH ROW EXECUTE FUNCTION usage_events_added()"
    )


# The stretch that begins last before the event, if the event is in it.
_MAKE_UNPROVEN = (
    "UPDATE event_checkpoints SET version = version + 1, digest = NULL WHERE from_id = "
    "(SELECT max(c.from_id) FROM event_checkpoints c WHERE c.from_id <= NEW.event_id) "
    "AND NEW.event_id < until_id"
)


def _adding(table: str) -> str:
    span = SPANS[table][0]
    columns = ("workspace_id", span, "month", *KEY)
    summed = ", ".join(f"{name} = {table}.{name} + excluded.{name}" for name, _ in SUMS)
    return (
        f"INSERT INTO {table} ({', '.join([*columns, *(name for name, _ in SUMS)])}) "
        f"VALUES ({', '.join([*_key_of('NEW', table), *(sql.format(e='NEW') for _, sql in SUMS)])}) "
        f"ON CONFLICT ({', '.join(columns)}) DO UPDATE SET {summed}"
    )


def _fill(table: str) -> None:
    span, key = SPANS[table][0], _key_of("e", table)
    columns = ["workspace_id", span, "month", *KEY, *(name for name, _ in SUMS)]
    sums = [f"sum({sql.format(e='e')})" for _, sql in SUMS]
    op.execute(
        f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join([*key, *sums])} "
        f"FROM usage_events e GROUP BY {', '.join(str(place + 1) for place in range(len(key)))}"
    )


def _key_of(row: str, table: str) -> list[str]:
    day, month = _settled(row, "day"), _settled(row, "month")
    return [
        f"{row}.workspace_id",
        day if table == "usage_days" else month,
        f"coalesce({row}.month, {month})",
        f"{row}.project_id",
        f"{row}.key_id",
        f"{row}.model_id",
        f"coalesce({row}.route, '')",
    ]


def _settled(row: str, span: str) -> str:
    if _is_sqlite():
        # Stored as text, in UTC.
        return f"substr({row}.settled_at, 1, {10 if span == 'day' else 7})"
    pattern = "YYYY-MM-DD" if span == "day" else "YYYY-MM"
    return f"to_char(timezone('UTC', {row}.settled_at), '{pattern}')"
