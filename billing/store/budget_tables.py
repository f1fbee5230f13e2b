"""Tables of budgets and of rate limits by hour and day, with what each has in its periods, as SQLAlchemy Core sees
them."""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Double,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    UniqueConstraint,
    and_,
    case,
    cast,
    literal,
    text,
)

from billing.store.stored_types import UtcDateTime, metadata

budgets = Table(
    "budgets",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("workspace_id", String(32), ForeignKey("workspaces.id"), nullable=False),
    # Whose it is: `workspace`, `project` or `key`, and its id; of rotated keys, that of the first. `person` and `tag`:
    # the project's id, a colon, and `*` for each person, or the tag.
    Column("scope", String(16), nullable=False),
    Column("subject", String(64), nullable=False),
    # `hour`, `day`, `week`, `month` or `total`, in the time zone of the workspace.
    Column("period", String(8), nullable=False),
    Column("limit_nano_usd", BigInteger, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    # What becomes of a chat that it has no room for: `refuse`, `flex` or `model:…`.
    Column("at_end", String(160), nullable=False, server_default="refuse"),
    # Where that is not `refuse`: chats that may land do so once so much is posted or held.
    Column("land_from_percent", Integer, nullable=False, server_default="100"),
    UniqueConstraint("subject", "period"),
    Index("ix_budgets_workspace_id", "workspace_id"),
    Index("ix_budgets_created_at", "created_at", "id"),
)

# Of limits and budgets these are announced.
PERCENTS = (50, 80, 100)


def part_of(limit: ColumnElement[int], percent: ColumnElement[int]) -> ColumnElement[int]:
    """So many percent of the limit, rounded up. In two parts: a hundred times the limit may be more than fits."""
    wide = cast(percent, BigInteger)
    return limit // 100 * wide + (limit % 100 * wide + 99) // 100


def reached(limit: ColumnElement[int], used: ColumnElement[int]) -> ColumnElement[int]:
    """The highest of `PERCENTS` that is used, or 0; a limit of nothing has none."""
    whens = [(and_(limit > 0, used >= part_of(limit, literal(one))), one) for one in reversed(PERCENTS)]
    return case(*whens, else_=0)


_DUE: Any = dict.fromkeys(("sqlite_where", "postgresql_where"), text("reached_percent > announced_percent"))

# A row for each period in which something was held: kept here so that a hold is one conditional statement.
budget_counters = Table(
    "budget_counters",
    metadata,
    # The budget's id, the period's key and, of a budget of each person, the person's, with colons between.
    Column("id", String(64), primary_key=True),
    Column("budget_id", String(32), ForeignKey("budgets.id"), nullable=False),
    Column("posted_nano_usd", BigInteger, nullable=False),
    Column("held_nano_usd", BigInteger, nullable=False),
    # In seconds since 1970: no later than the moment that any request's id begins with which is counted here, nor than
    # the first such moment by the database's clock.
    Column("began_at", Double, nullable=False),
    # By the database's clock. NULL: the period never ends, and the row is kept as long as its budget.
    Column("ends_at", Double),
    # `reached` of what is posted, and up to which percentage it was announced.
    Column("reached_percent", Integer, nullable=False, server_default="0"),
    Column("announced_percent", Integer, nullable=False, server_default="0"),
    Index("ix_budget_counters_budget_id", "budget_id"),
    Index("ix_budget_counters_ends_at", "ends_at"),
    Index("ix_budget_counters_due", "budget_id", **_DUE),
)

# A row for each limit of requests or tokens by hour or day of a key, person, tag, project or workspace, once it has
# counted something.
rate_counters = Table(
    "rate_counters",
    metadata,
    # Whose it is, as the limiter knows it, what is counted and by which period, with colons between.
    Column("id", String(96), primary_key=True),
    # The hour or day that is counted, by its end, in seconds since 1970 by the database's clock.
    Column("ends_at", Double, nullable=False),
    Column("used", BigInteger, nullable=False),
    Index("ix_rate_counters_ends_at", "ends_at"),
)
