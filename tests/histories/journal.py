"""A journal of row versions: triggers on a PostgreSQL ledger write down each change that moves money, in its own
transaction and while the row is locked, so that the versions of a row have their true order."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, text

WORKSPACE = ("posted", "credited", "held", "month_posted", "spend_limit", "monthly_limit")
KEY = ("posted", "held", "month_posted", "spend_limit", "monthly_limit")
_COLUMNS = {
    "workspaces": [f"{n}_nano_usd" for n in WORKSPACE],
    "api_keys": [f"{n}_nano_usd" for n in KEY],
}
_TABLE = """
CREATE TABLE history (
    seq BIGSERIAL PRIMARY KEY, tx BIGINT NOT NULL, at DOUBLE PRECISION NOT NULL,
    kind TEXT NOT NULL, id TEXT NOT NULL, owner TEXT, key TEXT, before BIGINT[], after BIGINT[]
)"""
_NOTE = """
CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO history (tx, at, kind, id, owner, key, before, after) VALUES (
        pg_current_xact_id()::text::bigint, extract(epoch FROM clock_timestamp()), {values});
    RETURN NULL;
END $$"""
# What is noted, by trigger: after which changes of which table, and the values of the row in `history`.
_NOTED = {
    "history_of_workspaces": ("INSERT OR UPDATE ON workspaces", "'workspace', NEW.id, NEW.id, NULL, {old}, {new}"),
    "history_of_keys": (
        "INSERT OR UPDATE OF posted_nano_usd, held_nano_usd, spend_limit_nano_usd, monthly_limit_nano_usd ON api_keys",
        "'key', NEW.id, NULL, NEW.id, {old}, {new}",
    ),
    "history_of_opened": (
        "INSERT ON holds",
        "'opened', NEW.event_id, NEW.workspace_id, NEW.key_id, NULL, ARRAY[NEW.amount_nano_usd]",
    ),
    "history_of_closed": (
        "DELETE ON holds",
        "'closed', OLD.event_id, OLD.workspace_id, OLD.key_id, ARRAY[OLD.amount_nano_usd], NULL",
    ),
    "history_of_events": (
        "INSERT ON usage_events",
        "'event', NEW.event_id, NEW.workspace_id, NEW.key_id, NULL, "
        "ARRAY[NEW.cost_nano_usd, NEW.written_off_nano_usd]",
    ),
    "history_of_adjustments": (
        "INSERT ON adjustments",
        "'adjustment', NEW.id, NEW.workspace_id, NULL, NULL, ARRAY[NEW.nano_usd]",
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a row, by transaction; `before` and `after` are its figures in nano-USD, `at` is seconds since
    1970, before the commit."""

    seq: int
    tx: int
    at: float
    kind: str
    id: str
    workspace: str | None
    key: str | None
    before: tuple[int | None, ...]
    after: tuple[int | None, ...]


def begin(connection: Connection) -> None:
    """Have the ledger's changes written down from now on."""
    connection.execute(text(_TABLE))
    for name, (when, values) in _NOTED.items():
        table = when.split()[-1]
        arrays = {
            side: f"ARRAY[{', '.join(f'{row}.{column}' for column in _COLUMNS.get(table, ()))}]"
            for side, row in (("old", "OLD"), ("new", "NEW"))
        }
        # Of a new row there is none before.
        arrays["old"] = f"CASE WHEN TG_OP = 'UPDATE' THEN {arrays['old']} END"
        connection.exec_driver_sql(_NOTE.format(name=name, values=values.format(**arrays)))
        connection.exec_driver_sql(
            f"CREATE TRIGGER {name} AFTER {when} FOR EACH ROW EXECUTE FUNCTION {name}()"
        )


def taken(connection: Connection) -> list[Change]:
    """What was written down, in order; the journal is empty then."""
    rows = connection.execute(text("SELECT * FROM history ORDER BY seq")).all()
    connection.execute(text("TRUNCATE history"))
    return [
        Change(seq, tx, at, kind, id_, owner, key, tuple(before or ()), tuple(after or ()))
        for seq, tx, at, kind, id_, owner, key, before, after in rows
    ]
