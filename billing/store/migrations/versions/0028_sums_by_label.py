"""Sums of usage by person and by tag, filled from the events that are there, and from each that comes."""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

SUMS = {
    "requests": "1",
    "prompt_tokens": "{e}.prompt_tokens",
    "completion_tokens": "{e}.completion_tokens",
    "cached_tokens": "{e}.cached_tokens",
    "cost_nano_usd": "{e}.cost_nano_usd - {e}.written_off_nano_usd",
    "written_off_nano_usd": "{e}.written_off_nano_usd",
    "tokens_saved": "coalesce({e}.original_tokens - {e}.prompt_tokens, 0)",
    "saved_nano_usd": (
        "CASE WHEN {e}.written_off_nano_usd = 0 OR {e}.saved_nano_usd < 0 THEN {e}.saved_nano_usd ELSE 0 END"
    ),
    "compression_nano_usd": "{e}.compression_nano_usd",
}
TABLES = {"label_days": ("day", 10), "label_months": ("settled_month", 7)}
IS_LABELLED = "NEW.person IS NOT NULL OR NEW.tags IS NOT NULL"


def upgrade() -> None:
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    for table, (span, chars) in TABLES.items():
        # By project and kind first: a report of one reads what lies together.
        key = {"workspace_id": 32, "project_id": 32, "kind": 8, span: chars, "label": 32, "month": 7}
        op.create_table(
            table,
            *(sa.Column(name, sa.String(size), nullable=False) for name, size in key.items()),
            *(sa.Column(name, sa.BigInteger(), nullable=False) for name in SUMS),
            sa.PrimaryKeyConstraint(*key, name=f"pk_{table}"),
            sqlite_with_rowid=False,
        )
    adding = "; ".join(one for table in TABLES for one in _adding(table, "NEW", "", is_sqlite))
    when = f"AFTER INSERT ON usage_events {{}}WHEN ({IS_LABELLED})"
    if is_sqlite:
        _run(f"CREATE TRIGGER usage_events_labels {when.format('')} BEGIN {adding}; END")
    else:
        _run(
            "CREATE FUNCTION usage_events_labelled() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN {adding}; RETURN NULL; END $$"
        )
        each = when.format("FOR EACH ROW ")
        _run(f"CREATE TRIGGER usage_events_labels {each} EXECUTE FUNCTION usage_events_labelled()")
    # After the trigger, which waits for those who write: none of their events is left out.
    for table in TABLES:
        for one in _adding(table, "e", "usage_events e", is_sqlite):
            _run(one)


def _run(statement: str) -> None:
    op.get_bind().exec_driver_sql(statement)


def _adding(table: str, e: str, source: str, is_sqlite: bool) -> list[str]:
    """Adds the event `e`, or all of `source`, to the sums of its person and of each of its tags."""
    span = TABLES[table][0]
    key = ("workspace_id", "project_id", "kind", span, "label", "month")
    # Tags have no quotes and no backslashes.
    tags = (
        f"""json_each('["' || replace({e}.tags, ',', '","') || '"]') AS tag"""
        if is_sqlite
        else f"unnest(string_to_array({e}.tags, ',')) AS tag(value)"
    )
    selects = []
    for kind, label, origin in (
        ("person", f"{e}.person", source),
        ("tag", "tag.value", ", ".join(filter(None, (source, tags)))),
    ):
        month = _settled(e, "month", is_sqlite)
        settled = _settled(e, "day", is_sqlite) if span == "day" else month
        columns = (
            f"{e}.workspace_id, {e}.project_id, '{kind}', {settled}, {label}, coalesce({e}.month, {month})"
        )
        amounts = [sum_.format(e=e) for sum_ in SUMS.values()]
        sums = ", ".join(f"sum({amount})" if source else amount for amount in amounts)
        grouping = " GROUP BY 1, 2, 3, 4, 5, 6" if source else ""
        origin = f"FROM {origin} " if origin else ""
        selects.append(f"SELECT {columns}, {sums} {origin}WHERE {label} IS NOT NULL{grouping}")
    summed = ", ".join(f"{name} = {table}.{name} + excluded.{name}" for name in SUMS)
    return [
        f"INSERT INTO {table} ({', '.join([*key, *SUMS])}) {one} "
        f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {summed}"
        for one in selects
    ]


def _settled(e: str, span: str, is_sqlite: bool) -> str:
    if is_sqlite:
        return f"substr({e}.settled_at, 1, {10 if span == 'day' else 7})"
    pattern = "YYYY-MM-DD" if span == "day" else "YYYY-MM"
    return f"to_char(timezone('UTC', {e}.settled_at), '{pattern}')"
