"""On PostgreSQL, usage events in a table for each month, by the time that an event's id begins with.

The table that is there becomes the first of them as it is: no row is moved. SQLite keeps one table.
"""

from datetime import UTC, datetime

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

COLUMNS = ("workspace_id", "project_id", "key_id")
# A server makes those that follow (`billing/rollups/partitions.py`).
MONTHS_AHEAD = 3


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        return
    first = _first_month()
    cut = _id_of(first)
    _set_aside(cut)
    op.execute(
        "CREATE TABLE usage_events (LIKE usage_events_before INCLUDING DEFAULTS INCLUDING CONSTRAINTS) "
        "PARTITION BY RANGE (event_id)"
    )
    op.execute("ALTER TABLE usage_events DROP CONSTRAINT ck_usage_events_before")
    op.execute("ALTER TABLE usage_events ADD CONSTRAINT pk_usage_events PRIMARY KEY (event_id)")
    _refer()
    op.execute(
        f"ALTER TABLE usage_events ATTACH PARTITION usage_events_before FOR VALUES FROM (MINVALUE) TO ('{cut}')"
    )
    op.execute("ALTER TABLE usage_events_before DROP CONSTRAINT ck_usage_events_before")
    op.execute("CREATE INDEX ix_usage_events_workspace_id ON usage_events (workspace_id, settled_at)")
    op.execute(
        "CREATE INDEX ix_usage_events_conversation ON usage_events (workspace_id, month) "
        "WHERE conversation IS NOT NULL"
    )
    for _ in range(MONTHS_AHEAD + 1):
        following = _following(first)
        _create_month(first, following)
        first = following
    op.execute("ALTER TABLE usage_events ATTACH PARTITION usage_events_other DEFAULT")
    _keep_sums()


def _set_aside(cut: str) -> None:
    op.execute("LOCK TABLE usage_events IN ACCESS EXCLUSIVE MODE")
    op.execute("DROP TRIGGER usage_events_sums ON usage_events")
    op.execute("ALTER TABLE usage_events RENAME TO usage_events_before")
    for name in ("pk", "ix"):
        column = "" if name == "pk" else "_workspace_id"
        old = f"{name}_usage_events{column}"
        op.execute(f"ALTER INDEX {old} RENAME TO {name}_usage_events_before{column}")
    op.execute("ALTER INDEX ix_usage_events_conversation RENAME TO ix_usage_events_before_conversation")
    _move_others(cut)
    # Read once here, so that attaching it reads nothing.
    op.execute(
        f"ALTER TABLE usage_events_before ADD CONSTRAINT ck_usage_events_before CHECK (event_id < '{cut}')"
    )


def _move_others(cut: str) -> None:
    """What has no table of its own: ids that do not begin with a time up to now, which no server made."""
    op.execute(
        "CREATE TABLE usage_events_other (LIKE usage_events_before INCLUDING DEFAULTS INCLUDING CONSTRAINTS)"
    )
    op.execute(f"INSERT INTO usage_events_other SELECT * FROM usage_events_before WHERE event_id >= '{cut}'")
    _forbid_changes("usage_events_other")
    op.execute("ALTER TABLE usage_events_before DISABLE TRIGGER usage_events_no_change")
    op.execute(f"DELETE FROM usage_events_before WHERE event_id >= '{cut}'")
    op.execute("ALTER TABLE usage_events_before ENABLE TRIGGER usage_events_no_change")


def _refer() -> None:
    """As the table before does, whose constraints these become."""
    for column in COLUMNS:
        table = {"workspace_id": "workspaces", "project_id": "projects", "key_id": "api_keys"}[column]
        op.execute(
            f"ALTER TABLE usage_events ADD CONSTRAINT fk_usage_events_{column} "
            f"FOREIGN KEY ({column}) REFERENCES {table} (id)"
        )
    op.execute(
        "ALTER TABLE usage_events ADD CONSTRAINT fk_usage_events_pricing_version "
        "FOREIGN KEY (pricing_version, model_id) REFERENCES prices (version, model_id)"
    )


def _keep_sums() -> None:
    op.execute(
        "CREATE TRIGGER usage_events_sums AFTER INSERT ON usage_events "
        "FOR EACH ROW EXECUTE FUNCTION usage_events_added()"
    )
    _forbid_changes("usage_events")


def _forbid_changes(table: str) -> None:
    op.execute(
        f"CREATE TRIGGER usage_events_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
        "FOR EACH STATEMENT EXECUTE FUNCTION usage_events_append_only()"
    )


def _create_month(first: datetime, following: datetime) -> None:
    name = f"usage_events_{first:%Y_%m}"
    op.execute(
        f"CREATE TABLE {name} PARTITION OF usage_events "
        f"FOR VALUES FROM ('{_id_of(first)}') TO ('{_id_of(following)}')"
    )
    _forbid_changes(name)


def _first_month() -> datetime:
    """The first one that gets a table of its own: this month in an empty ledger, else the one after all events."""
    connection = op.get_bind()
    now = datetime.fromtimestamp(connection.exec_driver_sql("SELECT pith_now()").scalar_one(), UTC)
    this = datetime(now.year, now.month, 1, tzinfo=UTC)
    known = "SELECT max(event_id) FROM usage_events WHERE event_id ~ '^[0-9a-f]{12}'"
    last = connection.exec_driver_sql(known).scalar_one()
    first = this if last is None else _following(this)
    while last is not None and _id_of(first) <= last:
        first = _following(first)
    return first


def _following(month: datetime) -> datetime:
    return month.replace(year=month.year + month.month // 12, month=month.month % 12 + 1)


def _id_of(moment: datetime) -> str:
    """Ids of events that began earlier are less."""
    return f"{int(moment.timestamp() * 1000):012x}"
