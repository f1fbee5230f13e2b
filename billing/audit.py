"""Reads the ledger back: its events, and whether balances and costs are what the rows say that they must be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, func, select
from sqlalchemy.engine import Row

from billing.dates import calendar
from billing.price import Cost, ModelPrice, cost
from billing.schema import collections, holds, prices, usage_events, workspaces
from billing.usage import UsageEvent

EVENTS_AT_ONCE = 5000
FIGURES = ("posted", "held", "month_posted", "collected")


@dataclass(frozen=True, slots=True)
class Difference:
    """A figure of a workspace's row that its events, holds or collections do not add up to."""

    workspace_id: str
    figure: str
    stored_nano_usd: int
    rebuilt_nano_usd: int


@dataclass(frozen=True, slots=True)
class Balances:
    """The balances of one workspace twice: as its row has them, and as the rows below add up to."""

    workspace_id: str
    events: int
    stored: dict[str, int]
    rebuilt: dict[str, int]

    @property
    def differences(self) -> list[Difference]:
        return [
            Difference(self.workspace_id, figure, self.stored[figure], self.rebuilt[figure])
            for figure in FIGURES
            if self.stored[figure] != self.rebuilt[figure]
        ]


@dataclass(frozen=True, slots=True)
class MispricedEvent:
    """An event whose charge is not what its tokens cost by the price list that it names."""

    event_id: str
    workspace_id: str
    charged: Cost
    due: Cost


def recent_events(
    connection: Connection, *, workspace_id: str | None, project_id: str | None, limit: int
) -> list[UsageEvent]:
    """The last events to be settled, newest first; None is any workspace, any project."""
    statement = select(usage_events).order_by(
        usage_events.c.settled_at.desc(), usage_events.c.event_id.desc()
    )
    if workspace_id is not None:
        statement = statement.where(usage_events.c.workspace_id == workspace_id)
    if project_id is not None:
        statement = statement.where(usage_events.c.project_id == project_id)
    return [UsageEvent(**row._mapping) for row in connection.execute(statement.limit(limit))]


def balances(connection: Connection) -> list[Balances]:
    """Every workspace's, in one statement and so of one moment: a settlement between two would look like a loss."""
    of_row = usage_events.c.workspace_id == workspaces.c.id
    this_month = calendar(connection, usage_events.c.settled_at, "month") == workspaces.c.month
    uncancelled = and_(collections.c.workspace_id == workspaces.c.id, collections.c.state != "void")
    statement = select(
        workspaces,
        select(func.count()).where(of_row).scalar_subquery().label("events"),
        _sum(usage_events.c.cost_nano_usd, of_row).label("posted"),
        _sum(holds.c.amount_nano_usd, holds.c.workspace_id == workspaces.c.id).label("held"),
        _sum(usage_events.c.cost_nano_usd, and_(of_row, this_month)).label("month_posted"),
        _sum(collections.c.nano_usd, uncancelled).label("collected"),
    )
    return [_balances(row) for row in connection.execute(statement.order_by(workspaces.c.id))]


def differences(connection: Connection) -> list[Difference]:
    """Empty when every balance can be rebuilt from the events, the open holds and the collections."""
    return [difference for row in balances(connection) for difference in row.differences]


def mispriced_events(connection: Connection) -> Iterator[MispricedEvent]:
    """Works every event's cost out again, from its tokens and the price list that it names.

    In Python's integers: the product of a token count and a price may pass 64 bits.
    """
    after = ""
    while rows := connection.execute(_priced_events(after)).all():
        for row in rows:
            charged = Cost(row.subtotal_nano_usd, row.cost_nano_usd, row.minimum_applied)
            due = _due(row)
            if charged != due:
                yield MispricedEvent(row.event_id, row.workspace_id, charged, due)
        after = rows[-1].event_id


def _priced_events(after: str) -> Select[Any]:
    priced = usage_events.join(
        prices,
        and_(
            prices.c.version == usage_events.c.pricing_version, prices.c.model_id == usage_events.c.model_id
        ),
    )
    return (
        select(
            usage_events,
            prices.c.input_micro_usd_per_mtok,
            prices.c.output_micro_usd_per_mtok,
            prices.c.minimum_nano_usd,
        )
        .select_from(priced)
        .where(usage_events.c.event_id > after)
        .order_by(usage_events.c.event_id)
        .limit(EVENTS_AT_ONCE)
    )


def _due(row: Row[Any]) -> Cost:
    price = ModelPrice(
        row.model_id, row.input_micro_usd_per_mtok, row.output_micro_usd_per_mtok, row.minimum_nano_usd
    )
    return cost(
        price,
        prompt_tokens=row.prompt_tokens,
        completion_tokens=row.completion_tokens,
        # A failure after the first token pays for its tokens alone.
        minimum=row.outcome != "failed",
    )


def _balances(row: Row[Any]) -> Balances:
    fields = row._mapping
    return Balances(
        workspace_id=row.id,
        events=row.events,
        stored={figure: fields[f"{figure}_nano_usd"] for figure in FIGURES},
        # PostgreSQL sums integers into a NUMERIC.
        rebuilt={figure: int(fields[figure]) for figure in FIGURES},
    )


def _sum(column: ColumnElement[int], where: ColumnElement[bool]) -> ColumnElement[int]:
    return select(func.coalesce(func.sum(column), 0)).where(where).scalar_subquery()
