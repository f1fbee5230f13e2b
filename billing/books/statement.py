"""The statement of a workspace for one calendar month (UTC): what it owed, used, was asked for and paid.

What is owed at a moment is all that was charged until then, with adjustments, less all that was paid: neither cutting
nor voiding a collection changes it. Both ends of a collection are final, and usage counts toward the month in which it
was charged, as an adjustment does toward the one in which it was made, so a past month reads the same whenever it is
asked for.
"""

from dataclasses import dataclass
from datetime import datetime
from functools import partial

from sqlalchemy import Connection, and_, func, or_, select

from billing.accounts import account_sql
from billing.adjustments import adjustments as adjustment_sql
from billing.adjustments.adjustment import Adjustment
from billing.books.compressions import Comparison, comparisons
from billing.books.preservation import Preservation, preservation
from billing.books.saving import LINES, PRESERVATION_LINES
from billing.books.usage_report import UsageSum, usage
from billing.collections import collection_sql
from billing.collections.collection import Collection
from billing.rollups.archived import is_archived
from billing.store.database import use_one_snapshot
from billing.store.dates import month_bounds
from billing.store.rollup_tables import usage_months
from billing.store.schema import adjustments, collections

_c = collections.c
# Persons, and tags, that a statement names; `pith usage` has all.
MOST_LABELLED = 100


@dataclass(frozen=True, slots=True)
class Balance:
    """What is owed at one moment. `asked` is the part in collections that are neither paid nor void. What is owed or
    uncollected is credit below zero."""

    owed_nano_usd: int
    asked_nano_usd: int

    @property
    def uncollected_nano_usd(self) -> int:
        return self.owed_nano_usd - self.asked_nano_usd


@dataclass(frozen=True, slots=True)
class Statement:
    """`closing` is `opening`, what was used and adjusted, less what was paid. `adjustments`, `cut` and `closed` are the
    month's."""

    workspace_id: str
    workspace_name: str
    month: str
    since: datetime
    until: datetime
    opening: Balance
    usage: tuple[UsageSum, ...]
    # The most expensive persons and tags, by project; usage with two tags is in both.
    by_person: tuple[UsageSum, ...]
    by_tag: tuple[UsageSum, ...]
    # What compression saved as it was measured, by project and model.
    comparisons: tuple[Comparison, ...]
    # What it changed in replies, of those that were scored again, by project, model and kind of block.
    preservation: tuple[Preservation, ...]
    adjustments: tuple[Adjustment, ...]
    cut: tuple[Collection, ...]
    closed: tuple[Collection, ...]
    closing: Balance
    # Then there are no comparisons: they are made of single events.
    is_archived: bool = False

    @property
    def written_off_nano_usd(self) -> int:
        """The part of the cost that was written off; it is in no balance."""
        return sum(line.written_off_nano_usd for line in self.usage)

    @property
    def used_nano_usd(self) -> int:
        return sum(line.cost_nano_usd for line in self.usage)

    @property
    def adjusted_nano_usd(self) -> int:
        """Added to what is owed: below zero where more was credited."""
        return sum(one.nano_usd for one in self.adjustments)

    @property
    def paid_nano_usd(self) -> int:
        return sum(collection.nano_usd for collection in self.closed if collection.state == "paid")


def statement(connection: Connection, workspace: str, month: str) -> Statement:
    """Raises `UnknownAccount`, and `ValueError` for an invalid month."""
    since, until = month_bounds(month)
    # Or a settlement between the statements would be in the lines and not in the sum.
    use_one_snapshot(connection)
    owner = account_sql.find_workspace(connection, workspace)
    collections_so_far = collection_sql.listed(connection, workspace=owner.id, until=until)
    read = partial(usage, connection, workspace=owner.id, charged_in=month)
    archive = is_archived(connection, month)
    compared = [] if archive else comparisons(connection, LINES, workspace=owner.id, charged_in=month)
    return Statement(
        workspace_id=owner.id,
        workspace_name=owner.name,
        month=month,
        since=since,
        until=until,
        opening=_balance(connection, owner.id, month, since, including=False),
        usage=tuple(read(LINES)),
        by_person=tuple(read(("project", "person"), limit=MOST_LABELLED)),
        by_tag=tuple(read(("project", "tag"), limit=MOST_LABELLED)),
        comparisons=tuple(compared),
        preservation=tuple(
            preservation(connection, PRESERVATION_LINES, workspace=owner.id, since=since, until=until)
        ),
        adjustments=tuple(adjustment_sql.listed(connection, workspace=owner.id, month=month)),
        cut=tuple(one for one in collections_so_far if one.created_at >= since),
        closed=tuple(one for one in collections_so_far if one.closed_at and since <= one.closed_at < until),
        closing=_balance(connection, owner.id, month, until, including=True),
        is_archived=archive,
    )


def _balance(
    connection: Connection, workspace_id: str, month: str, moment: datetime, *, including: bool
) -> Balance:
    """As it was just before `moment`: the beginning of the month, or its end and `including` it."""
    charged_in = usage_months.c.month
    posted = select(func.coalesce(func.sum(usage_months.c.cost_nano_usd), 0)).where(
        usage_months.c.workspace_id == workspace_id, charged_in <= month if including else charged_in < month
    )
    of_months = adjustments.c.month <= month if including else adjustments.c.month < month
    adjusted = select(func.coalesce(func.sum(adjustments.c.nano_usd), 0)).where(
        adjustments.c.workspace_id == workspace_id, of_months
    )
    closed = and_(_c.closed_at.is_not(None), _c.closed_at < moment)
    amount = select(func.coalesce(func.sum(_c.nano_usd), 0)).where(_c.workspace_id == workspace_id)
    paid = amount.where(_c.state == "paid", closed)
    asked = amount.where(_c.created_at < moment, or_(_c.closed_at.is_(None), _c.closed_at >= moment))
    sums = select(*(amounts.scalar_subquery() for amounts in (posted, adjusted, paid, asked)))
    posted_nano, adjusted_nano, paid_nano, asked_nano = map(int, connection.execute(sums).one())
    return Balance(owed_nano_usd=posted_nano + adjusted_nano - paid_nano, asked_nano_usd=asked_nano)
