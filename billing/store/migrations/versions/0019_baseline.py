"""The schema as it was when the migrations began: tables from `0019_baseline.sql`, triggers, and months on PostgreSQL.

Its number is that of the last of the migrations that it replaces, so a development ledger which is there goes on.
"""

from datetime import UTC, datetime
from pathlib import Path

from alembic import op

revision = "0019"
down_revision = None
branch_labels = None
depends_on = None

SQLITE = {
    "time": "DATETIME",
    "double": "DOUBLE",
    "bytes": "BLOB",
    "false": "0",
    # SQLite counts up only a primary key that is an INTEGER.
    "serial": "INTEGER",
    "without_rowid": " WITHOUT ROWID",
    "by_event_id": "",
}
POSTGRESQL = {
    "time": "TIMESTAMP WITH TIME ZONE",
    "double": "DOUBLE PRECISION",
    "bytes": "BYTEA",
    "false": "false",
    "serial": "BIGSERIAL",
    "without_rowid": "",
    "by_event_id": " PARTITION BY RANGE (event_id)",
}
# By table: the trigger, what it refuses, and its words. Below every code path, the database itself refuses.
APPEND_ONLY = ("price_lists", "prices", "adjustments")
COLLECTIONS_FIXED = "UPDATE OF id, workspace_id, idempotency_key, cents, nano_usd, created_at"
FORBIDDEN = (
    ("collections", "no_delete", ("DELETE",), "a collection is voided, never deleted"),
    ("collections", "fixed", (COLLECTIONS_FIXED,), "a collection keeps its amount"),
    ("audit_log", "no_change", ("UPDATE", "DELETE"), "audit_log is append-only"),
)
IS_LATE = (
    "NEW.event_id < (SELECT max(until_id) FROM archived_months) "
    "AND NOT EXISTS (SELECT 1 FROM late_events WHERE event_id = NEW.event_id)"
)
IS_BEING_DROPPED = (
    "EXISTS (SELECT 1 FROM archived_months WHERE state = 'dropping' "
    "AND from_id <= OLD.event_id AND OLD.event_id < until_id)"
)
EVENTS_ARE_FIXED = "usage_events is append-only"
ARCHIVED = "its month is archived, and takes no more usage events"
# The stretch that begins last before the event, if the event is in it.
MAKE_UNPROVEN = (
    "UPDATE event_checkpoints SET version = version + 1, digest = NULL WHERE from_id = "
    "(SELECT max(c.from_id) FROM event_checkpoints c WHERE c.from_id <= NEW.event_id) "
    "AND NEW.event_id < until_id"
)
# What an event adds to the sums of its day and of its month.
SUMS = {
    "requests": "1",
    "prompt_tokens": "NEW.prompt_tokens",
    "completion_tokens": "NEW.completion_tokens",
    "cached_tokens": "NEW.cached_tokens",
    "cost_nano_usd": "NEW.cost_nano_usd - NEW.written_off_nano_usd",
    "written_off_nano_usd": "NEW.written_off_nano_usd",
    "tokens_saved": "coalesce(NEW.original_tokens - NEW.prompt_tokens, 0)",
    "saved_nano_usd": (
        "CASE WHEN NEW.written_off_nano_usd = 0 OR NEW.saved_nano_usd < 0 THEN NEW.saved_nano_usd ELSE 0 END"
    ),
    "compression_nano_usd": "NEW.compression_nano_usd",
}
# A server makes those that follow (`billing/rollups/partitions.py`).
MONTHS_AHEAD = 3


def upgrade() -> None:
    sql = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8").format(**_spelling())
    for statement in sql.split(";\n"):
        if statement.strip():
            _run(statement)
    if _is_sqlite():
        _guard_on_sqlite()
    else:
        _guard_on_postgresql()
        _create_months()


def _is_sqlite() -> bool:
    return bool(op.get_bind().dialect.name == "sqlite")


def _spelling() -> dict[str, str]:
    return SQLITE if _is_sqlite() else POSTGRESQL


def _run(statement: str) -> None:
    op.get_bind().exec_driver_sql(statement)


def _guard_on_sqlite() -> None:
    refused = [
        (f"{table}_no_{verb.lower()}", table, verb, f"{table} is append-only")
        for table in APPEND_ONLY
        for verb in ("UPDATE", "DELETE")
    ]
    refused += [
        (f"{table}_{name}_{number}", table, verb, words)
        for table, name, verbs, words in FORBIDDEN
        for number, verb in enumerate(verbs)
    ]
    for name, table, verb, words in refused:
        _refuse_on_sqlite(name, f"BEFORE {verb} ON {table}", words)
    _refuse_on_sqlite("usage_events_no_update", "BEFORE UPDATE ON usage_events", EVENTS_ARE_FIXED)
    deleting = f"BEFORE DELETE ON usage_events WHEN NOT {IS_BEING_DROPPED}"
    _refuse_on_sqlite("usage_events_no_delete", deleting, EVENTS_ARE_FIXED)
    # After, so that an event that is there already is none that comes late.
    _refuse_on_sqlite("usage_events_late", f"AFTER INSERT ON usage_events WHEN {IS_LATE}", ARCHIVED)
    _run(f"CREATE TRIGGER usage_events_sums AFTER INSERT ON usage_events BEGIN {_adding()} END")


def _refuse_on_sqlite(name: str, when: str, words: str) -> None:
    _run(f"CREATE TRIGGER {name} {when} BEGIN SELECT RAISE(ABORT, '{words}'); END")


def _guard_on_postgresql() -> None:
    _create_clock()
    # It would try to compress every chunk, and ciphertext cannot be compressed.
    _run("ALTER TABLE original_chunks ALTER COLUMN ciphertext SET STORAGE EXTERNAL")
    for table in APPEND_ONLY:
        _create_function(f"{table}_append_only", _raise(f"{table} is append-only"))
        _forbid_changes(f"{table}_no_change", table, f"{table}_append_only")
    for table, name, verbs, words in FORBIDDEN:
        _create_function(f"{table}_{name}", _raise(words))
        every = (*verbs, "TRUNCATE") if "DELETE" in verbs else verbs
        _forbid_changes(f"{table}_{name}", table, f"{table}_{name}", " OR ".join(every))
    _guard_events_on_postgresql()


def _guard_events_on_postgresql() -> None:
    # Statements know no rows: while a month is dropped they may delete, and each row is looked at by itself.
    is_dropping = "TG_OP = 'DELETE' AND EXISTS (SELECT 1 FROM archived_months WHERE state = 'dropping')"
    refused = _raise(EVENTS_ARE_FIXED)
    _create_function("usage_events_append_only", f"IF {is_dropping} THEN RETURN NULL; END IF; {refused}")
    _create_function("usage_events_dropped", f"IF {IS_BEING_DROPPED} THEN RETURN OLD; END IF; {refused}")
    _create_function("usage_events_late", f"IF {IS_LATE} THEN {_raise(ARCHIVED)} END IF; RETURN NULL;")
    _create_function("usage_events_added", f"{_adding()} RETURN NULL;")
    _forbid_changes("usage_events_no_change", "usage_events", "usage_events_append_only")
    for name, when, function in (
        ("usage_events_no_delete", "BEFORE DELETE", "usage_events_dropped"),
        ("usage_events_late", "AFTER INSERT", "usage_events_late"),
        ("usage_events_sums", "AFTER INSERT", "usage_events_added"),
    ):
        _run(f"CREATE TRIGGER {name} {when} ON usage_events FOR EACH ROW EXECUTE FUNCTION {function}()")


def _create_clock() -> None:
    """The database's clock, by name: seconds since 1970, and the calendar month in UTC. On SQLite each connection
    brings both (`billing/store/sqlite.py`), since there the clock is the machine's."""
    _run(
        "CREATE FUNCTION pith_now() RETURNS double precision LANGUAGE sql VOLATILE AS "
        "$$ SELECT extract(epoch FROM clock_timestamp())::double precision $$"
    )
    _run(
        "CREATE FUNCTION pith_month() RETURNS text LANGUAGE sql VOLATILE AS "
        "$$ SELECT to_char(timezone('UTC', to_timestamp(pith_now())), 'YYYY-MM') $$"
    )


def _create_function(name: str, body: str) -> None:
    _run(f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$")


def _raise(words: str) -> str:
    return f"RAISE EXCEPTION '{words}' USING ERRCODE = 'integrity_constraint_violation';"


def _forbid_changes(
    name: str, table: str, function: str, changes: str = "UPDATE OR DELETE OR TRUNCATE"
) -> None:
    _run(
        f"CREATE TRIGGER {name} BEFORE {changes} ON {table} FOR EACH STATEMENT EXECUTE FUNCTION {function}()"
    )


def _adding() -> str:
    return (
        ";\n".join(
            [_adding_to("usage_days", "day"), _adding_to("usage_months", "settled_month"), MAKE_UNPROVEN]
        )
        + ";"
    )


def _adding_to(table: str, span: str) -> str:
    columns = ("workspace_id", span, "month", "project_id", "key_id", "model_id", "route")
    day, month = _settled("day"), _settled("month")
    of_event = [
        "NEW.workspace_id",
        day if span == "day" else month,
        f"coalesce(NEW.month, {month})",
        "NEW.project_id",
        "NEW.key_id",
        "NEW.model_id",
        "coalesce(NEW.route, '')",
    ]
    summed = ", ".join(f"{name} = {table}.{name} + excluded.{name}" for name in SUMS)
    return (
        f"INSERT INTO {table} ({', '.join([*columns, *SUMS])}) VALUES ({', '.join([*of_event, *SUMS.values()])}) "
        f"ON CONFLICT ({', '.join(columns)}) DO UPDATE SET {summed}"
    )


def _settled(span: str) -> str:
    if _is_sqlite():
        # Stored as text, in UTC.
        return f"substr(NEW.settled_at, 1, {10 if span == 'day' else 7})"
    pattern = "YYYY-MM-DD" if span == "day" else "YYYY-MM"
    return f"to_char(timezone('UTC', NEW.settled_at), '{pattern}')"


def _create_months() -> None:
    """Tables of usage events, by the time that an event's id begins with: one for each month, and two for the rest."""
    now = datetime.fromtimestamp(op.get_bind().exec_driver_sql("SELECT pith_now()").scalar_one(), UTC)
    first = datetime(now.year, now.month, 1, tzinfo=UTC)
    _create_part("before", f"FOR VALUES FROM (MINVALUE) TO ('{_id_of(first)}')")
    for old, new in (("pkey", "pk"), ("workspace_id_settled_at_idx", "ix"), ("workspace_id_month_idx", "ix")):
        column = {"pkey": "", "workspace_id_month_idx": "_conversation"}.get(old, "_workspace_id")
        _run(f"ALTER INDEX usage_events_before_{old} RENAME TO {new}_usage_events_before{column}")
    for _ in range(MONTHS_AHEAD + 1):
        following = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
        _create_part(f"{first:%Y_%m}", f"FOR VALUES FROM ('{_id_of(first)}') TO ('{_id_of(following)}')")
        first = following
    # Ids that do not begin with a time up to now, which no server made.
    _create_part("other", "DEFAULT")


def _create_part(name: str, bounds: str) -> None:
    _run(f"CREATE TABLE usage_events_{name} PARTITION OF usage_events {bounds}")
    _forbid_changes("usage_events_no_change", f"usage_events_{name}", "usage_events_append_only")


def _id_of(moment: datetime) -> str:
    """Ids of events that began earlier are less."""
    return f"{int(moment.timestamp() * 1000):012x}"
