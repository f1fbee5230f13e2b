"""Makes years of usage events, in the database itself: rows are written by the set, and then added up."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from billing.rollups.due_sums import refill
from billing.rollups.partitions import following, make_month
from billing.store.database import Database

Connection = Any
MODELS = 5
KEYS_IN_PROJECT, PROJECTS_IN_WORKSPACE = 2, 2
# The project whose requests name persons and tags, if any do, has a tenth of all events besides its own.
OF_PERSONS, TAGS = 14, 50
AT_ONCE = 1_000_000
# A price of a whole nano-dollar for each token.
INPUT_NANO, OUTPUT_NANO = 150, 600


@dataclass(frozen=True)
class Years:
    """`events` of `workspaces`, spread evenly over `months` up to yesterday."""

    events: int
    months: int = 36
    workspaces: int = 100
    persons: int = 0

    @property
    def keys(self) -> int:
        return self.workspaces * PROJECTS_IN_WORKSPACE * KEYS_IN_PROJECT

    @property
    def until(self) -> datetime:
        now = datetime.now(UTC)
        return datetime(now.year, now.month, now.day, tzinfo=UTC) - timedelta(days=1)

    @property
    def since(self) -> datetime:
        month = self.until.replace(day=1)
        for _ in range(self.months - 1):
            month = (month - timedelta(days=1)).replace(day=1)
        return month


async def generate(database: Database, years: Years) -> None:
    """Into an empty ledger of the latest schema."""
    await database.write(lambda c: _accounts(c, years))
    triggers = await database.write(lambda c: _prepare(c, years))
    for first in range(0, years.events, AT_ONCE):
        last = min(first + AT_ONCE, years.events)
        await database.write(partial(_events, years=years, first=first, last=last), durable=False)
    for step in (_index, refill, _balance):
        await database.write(step)
    for trigger in triggers:
        await database.write(partial(_make, trigger=trigger))


def _make(connection: Connection, trigger: str) -> None:
    connection.exec_driver_sql(trigger)


def _sqlite(connection: Connection) -> bool:
    return bool(connection.dialect.name == "sqlite")


def _numbers(connection: Connection, first: int, last: int) -> str:
    """The numbers from `first` to before `last` as `n(i)`."""
    if _sqlite(connection):
        return f"WITH RECURSIVE n(i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {last}) "
    return f"WITH n AS (SELECT i FROM generate_series({first}::bigint, {last - 1}::bigint) AS i) "


def _accounts(connection: Connection, years: Years) -> None:
    moment, month = f"'{years.since:%Y-%m-%d %H:%M:%S.000000}'", f"'{years.since:%Y-%m}'"
    if not _sqlite(connection):
        moment = f"timestamptz '{years.since.isoformat()}'"
    yes = "1" if _sqlite(connection) else "true"
    projects = years.workspaces * PROJECTS_IN_WORKSPACE
    statements = (
        (years.workspaces, "INSERT INTO workspaces (id, name, billing_enabled, posted_nano_usd, held_nano_usd, month, "
         "month_posted_nano_usd, created_at) "
         f"SELECT 'ws_' || i, 'workspace-' || i, {yes}, 0, 0, {month}, 0, {moment} FROM n"),
        (projects, "INSERT INTO projects (id, workspace_id, name, metered, created_at) "
         f"SELECT 'prj_' || i, 'ws_' || (i / {PROJECTS_IN_WORKSPACE}), 'project-' || i, {yes}, {moment} FROM n"),
        (years.keys, "INSERT INTO api_keys (id, project_id, name, digest, created_at) "
         f"SELECT 'key' || i, 'prj_' || (i / {KEYS_IN_PROJECT}), 'key-' || i, 'no digest', {moment} FROM n"),
        (1, f"INSERT INTO price_lists (version, created_at) SELECT 1, {moment} FROM n"),
        (MODELS, "INSERT INTO prices (version, model_id, input_micro_usd_per_mtok, output_micro_usd_per_mtok, "
         f"minimum_nano_usd) SELECT 1, 'model-' || i, {INPUT_NANO * 1000}, {OUTPUT_NANO * 1000}, 0 FROM n"),
    )  # fmt: skip
    for count, statement in statements:
        connection.exec_driver_sql(_numbers(connection, 0, count) + statement)


def _prepare(connection: Connection, years: Years) -> list[str]:
    """Nothing that is done for each row where it can be done for all; and on PostgreSQL a table for each month. Returns
    the triggers that are to be made again."""
    triggers = []
    if _sqlite(connection):
        for name in ("usage_events_sums", "usage_events_labels"):
            made = f"SELECT sql FROM sqlite_master WHERE name = '{name}'"
            triggers.append(connection.exec_driver_sql(made).scalar_one())
            connection.exec_driver_sql(f"DROP TRIGGER {name}")
    else:
        connection.exec_driver_sql("DROP TABLE usage_events_before")
        month, now = years.since.date(), datetime.now(UTC)
        while month < now.date().replace(day=1):
            make_month(connection, month)
            month = following(month)
    connection.exec_driver_sql("DROP INDEX ix_usage_events_workspace_id")
    connection.exec_driver_sql("DROP INDEX ix_usage_events_conversation")
    return triggers


def _events(connection: Connection, years: Years, first: int, last: int) -> None:
    start = int(years.since.timestamp() * 1000)
    span = int((years.until - years.since).total_seconds() * 1000)
    ms = f"({start} + i * {span // max(1, years.events)})"
    settled = f"({ms} + 900 + i % 3000)"
    key, person, tags = f"((i * 7919) % {years.keys})", "NULL", "NULL"
    if years.persons:
        ours = OF_PERSONS * KEYS_IN_PROJECT
        key = f"(CASE WHEN i % 10 = 0 THEN {ours} + (i / 10) % 2 ELSE {key} END)"
        number, tag = f"((i / 10 * 7919) % {years.persons})", f"(i / 10 * 31 % {TAGS})"
        hashed = f"printf('%016x', {number})" if _sqlite(connection) else f"lpad(to_hex({number}), 16, '0')"
        person = f"CASE WHEN i % 10 = 0 THEN 'psn_' || {hashed} END"
        more = f"CASE WHEN i % 30 = 0 THEN ',tag-' || (({tag} + 1) % {TAGS}) ELSE '' END"
        tags = f"CASE WHEN i % 10 = 0 THEN 'tag-' || {tag} || {more} END"
    project, workspace = (
        f"({key} / {KEYS_IN_PROJECT})",
        f"({key} / {KEYS_IN_PROJECT * PROJECTS_IN_WORKSPACE})",
    )
    model = f"(({key} + i % 2) % {MODELS})"
    prompt, completion = "(100 + i % 1900)", "(20 + i % 480)"
    cost = f"({prompt} * {INPUT_NANO} + {completion} * {OUTPUT_NANO})"
    if _sqlite(connection):
        event_id = f"printf('%012x%020x', {ms}, i)"
        at, month, no = _sqlite_time(ms), f"strftime('%Y-%m', {settled} / 1000, 'unixepoch')", "0"
        settled_at = _sqlite_time(settled)
    else:
        connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
        event_id = f"lpad(to_hex({ms}), 12, '0') || lpad(to_hex(i), 20, '0')"
        at, settled_at, no = f"to_timestamp({ms} / 1000.0)", f"to_timestamp({settled} / 1000.0)", "false"
        month = f"to_char(timezone('UTC', {settled_at}), 'YYYY-MM')"
    connection.exec_driver_sql(
        _numbers(connection, first, last)
        + "INSERT INTO usage_events (event_id, request_id, workspace_id, project_id, key_id, model_id, "
        "pricing_version, prompt_tokens, completion_tokens, cached_tokens, subtotal_nano_usd, minimum_applied, "
        "cost_nano_usd, outcome, stream, created_at, settled_at, month, person, tags, route) "
        f"SELECT {event_id}, 'r' || i, 'ws_' || {workspace}, 'prj_' || {project}, 'key' || {key}, "
        f"'model-' || {model}, 1, "
        f"{prompt}, {completion}, 0, {cost}, {no}, {cost}, 'completed', {no}, {at}, {settled_at}, {month}, "
        f"{person}, {tags}, "
        f"CASE WHEN i % 2 = 0 THEN 'chat' ELSE 'messages' END FROM n"
    )  # fmt: skip


def _sqlite_time(ms: str) -> str:
    return f"strftime('%Y-%m-%d %H:%M:%f', {ms} / 1000.0, 'unixepoch') || '000'"


def _index(connection: Connection) -> None:
    connection.exec_driver_sql(
        "CREATE INDEX ix_usage_events_workspace_id ON usage_events (workspace_id, settled_at)"
    )
    connection.exec_driver_sql(
        "CREATE INDEX ix_usage_events_conversation ON usage_events (workspace_id, month) WHERE conversation IS NOT NULL"
    )


def _balance(connection: Connection) -> None:
    """The workspaces' rows count the last month, and `workspace_months` the others."""
    posted = (
        "SELECT coalesce(sum(m.cost_nano_usd), 0) FROM usage_months m WHERE m.workspace_id = workspaces.id"
    )
    last = "(SELECT max(month) FROM usage_months)"
    connection.exec_driver_sql(
        f"UPDATE workspaces SET month = {last}, posted_nano_usd = ({posted}), "
        f"month_posted_nano_usd = ({posted} AND m.month = {last})"
    )
    connection.exec_driver_sql(
        "INSERT INTO workspace_months (workspace_id, month, posted_nano_usd) SELECT workspace_id, month, "
        f"sum(cost_nano_usd) FROM usage_months WHERE month <> {last} GROUP BY workspace_id, month"
    )
