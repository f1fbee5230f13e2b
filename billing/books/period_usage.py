"""What one project or one key used in a period: the total and its groups, of one moment."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from sqlalchemy import Connection

from billing.books.dimensions import Dimension
from billing.books.usage_report import UsageSum, usage
from billing.store.database import use_one_snapshot


@dataclass(frozen=True, slots=True)
class PeriodUsage:
    """`groups` are in their order, and at most as many as were asked for."""

    total: UsageSum
    groups: tuple[UsageSum, ...]


def period_usage(
    connection: Connection,
    by: Sequence[Dimension],
    *,
    workspace_id: str,
    project_id: str,
    key_id: str | None,
    since: datetime,
    until: datetime,
    limit: int,
) -> PeriodUsage:
    """Of all keys of the project where `key_id` is None. Call it first in a transaction: a settlement between two reads
    would be in the groups and not in the total."""
    use_one_snapshot(connection)
    read = partial(
        usage,
        connection,
        workspace=workspace_id,
        project_id=project_id,
        key_id=key_id,
        since=since,
        until=until,
    )
    (total,) = read(())
    return PeriodUsage(total, tuple(read(by, limit=limit)) if by else ())
