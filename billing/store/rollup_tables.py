"""The tables that add usage events up, those that say which of them were proven, and those of months that are archived,
as SQLAlchemy Core sees them.

Triggers of the database fill the sums in the transaction of each event, whoever writes it (docs/adr/0021).
"""

from sqlalchemy import BigInteger, Boolean, Column, ForeignKey, Index, Integer, String, Table, Text, true

from billing.store.stored_types import UtcDateTime, metadata

# What is added up, under the names that `UsageSum` has for it.
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


def _sums_by(name: str, span: str, chars: int, *more: Index) -> Table:
    return Table(
        name,
        metadata,
        Column("workspace_id", String(32), primary_key=True),
        # When they were settled, in UTC.
        Column(span, String(chars), primary_key=True),
        # To which they were charged.
        Column("month", String(7), primary_key=True),
        Column("project_id", String(32), primary_key=True),
        Column("key_id", String(16), primary_key=True),
        Column("model_id", String(256), primary_key=True),
        # Empty for events of releases that did not note it.
        Column("route", String(32), primary_key=True),
        *(Column(sum_, BigInteger, nullable=False) for sum_ in SUMS),
        *more,
    )


usage_days = _sums_by("usage_days", "day", 10, Index("ix_usage_days_day", "day"))
usage_months = _sums_by("usage_months", "settled_month", 7)


def _sums_by_label(name: str, span: str, chars: int) -> Table:
    """Of events that name a person or tags: once for the person, and once for each tag."""
    return Table(
        name,
        metadata,
        Column("workspace_id", String(32), primary_key=True),
        Column("project_id", String(32), primary_key=True),
        # `person` or `tag`.
        Column("kind", String(8), primary_key=True),
        Column(span, String(chars), primary_key=True),
        Column("label", String(32), primary_key=True),
        Column("month", String(7), primary_key=True),
        *(Column(sum_, BigInteger, nullable=False) for sum_ in SUMS),
    )


label_days = _sums_by_label("label_days", "day", 10)
label_months = _sums_by_label("label_months", "settled_month", 7)

# Stretches of event ids without a gap between them, from the first event on. An event that arrives in one makes it
# unproven again: the database counts `version` up and empties `digest`.
event_checkpoints = Table(
    "event_checkpoints",
    metadata,
    Column("from_id", String(32), primary_key=True),
    # Not in it.
    Column("until_id", String(32), nullable=False),
    Column("version", Integer, nullable=False),
    # SHA-256 of its events, in their order. NULL: not proven.
    Column("digest", String(64)),
    Column("events", BigInteger, nullable=False),
    # Counts the readings of stretches: the least is of the one that was not read for the longest time. -1: what was
    # kept of it is not what its events are, and every proof reads it.
    Column("read_number", BigInteger, nullable=False),
    Index("ix_event_checkpoints_read_number", "read_number"),
)

# What the events of a stretch add up to, by workspace and by the month to which they were charged.
checkpoint_sums = Table(
    "checkpoint_sums",
    metadata,
    Column("from_id", String(32), ForeignKey("event_checkpoints.from_id"), primary_key=True),
    Column("workspace_id", String(32), primary_key=True),
    Column("month", String(7), primary_key=True),
    Column("events", BigInteger, nullable=False),
    Column("charged_nano_usd", BigInteger, nullable=False),
    Column("written_off_nano_usd", BigInteger, nullable=False),
)

# In order and without a gap: of all events whose id is before the last `until_id`, none is taken any more. At most the
# last of them is not `dropped`.
archived_months = Table(
    "archived_months",
    metadata,
    Column("month", String(7), primary_key=True),
    Column("from_id", String(32), nullable=False),
    # Not in it.
    Column("until_id", String(32), nullable=False),
    # `sealed`: no event is added, and the events count as they are. `dropping`: they count as `archived_days` says, and
    # may be deleted. `dropped`: none is left.
    Column("state", String(8), nullable=False),
    Column("sealed_at", UtcDateTime, nullable=False),
    # From here on NULL while it is sealed.
    Column("archived_at", UtcDateTime),
    Column("events", BigInteger),
    Column("charged_nano_usd", BigInteger),
    Column("written_off_nano_usd", BigInteger),
    Column("last_settled_at", UtcDateTime),
    # The manifest of its files, as JSON.
    Column("manifest", Text),
    # False where it was archived before there was a transparency log: its events are no leaves of it.
    Column("in_log", Boolean, nullable=False, server_default=true()),
)

# `usage_days` of the events of such a month: what remains of them in the ledger.
archived_days = Table(
    "archived_days",
    metadata,
    Column("archived_month", String(7), ForeignKey("archived_months.month"), primary_key=True),
    Column("workspace_id", String(32), primary_key=True),
    Column("day", String(10), primary_key=True),
    Column("month", String(7), primary_key=True),
    Column("project_id", String(32), primary_key=True),
    Column("key_id", String(16), primary_key=True),
    Column("model_id", String(256), primary_key=True),
    Column("route", String(32), primary_key=True),
    *(Column(sum_, BigInteger, nullable=False) for sum_ in SUMS),
    Index("ix_archived_days_workspace_id", "workspace_id", "day"),
)

# Archived events that were refunded before, by which their refunds are proven.
archived_refunds = Table(
    "archived_refunds",
    metadata,
    Column("event_id", String(32), primary_key=True),
    Column("workspace_id", String(32), nullable=False),
    Column("charged_nano_usd", BigInteger, nullable=False),
)

# Events that the ledger takes although their month is archived, since the archive was shown not to have them.
late_events = Table(
    "late_events",
    metadata,
    Column("event_id", String(32), primary_key=True),
    Column("admitted_at", UtcDateTime, nullable=False),
)
