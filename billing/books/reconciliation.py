"""Whether the books add up: balances and costs recomputed from the rows beneath them."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, bindparam, func, select
from sqlalchemy.engine import Row

from billing.books.charges import CHARGED, charged_month
from billing.price import Cost, ModelPrice, cost
from billing.store.database import use_one_snapshot
from billing.store.schema import collections, holds, prices, usage_events, workspace_months, workspaces

EVENTS_AT_ONCE = 5000
_e = usage_events.c
_PRICED_EVENTS = (
    select(
        _e.event_id,
        _e.workspace_id,
        _e.model_id,
        _e.prompt_tokens,
        _e.completion_tokens,
        _e.subtotal_nano_usd,
        _e.cost_nano_usd,
        _e.minimum_applied,
        _e.outcome,
        prices.c.input_micro_usd_per_mtok,
        prices.c.output_micro_usd_per_mtok,
        prices.c.minimum_nano_usd,
    )
    .join(prices, and_(prices.c.version == _e.pricing_version, prices.c.model_id == _e.model_id))
    .where(_e.event_id > bindparam("after"))
    .order_by(_e.event_id)
    .limit(EVENTS_AT_ONCE)
)
_POSTED_BY_MONTH = select(
    workspace_months.c.workspace_id, workspace_months.c.month, workspace_months.c.posted_nano_usd
).join(
    workspaces,
    and_(workspaces.c.id == workspace_months.c.workspace_id, workspaces.c.month != workspace_months.c.month),
)
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
    """One workspace's balances as its row has them, and as the rows beneath it add up to."""

    workspace_id: str
    events: int
    stored: dict[str, int]
    rebuilt: dict[str, int]
    # The part of the events' cost that was written off; it is in no balance.
    written_off_nano_usd: int = 0

    @property
    def differences(self) -> list[Difference]:
        figures = sorted(self.stored.keys() | self.rebuilt.keys(), key=_figure_order)
        return [
            Difference(self.workspace_id, figure, self.stored.get(figure, 0), self.rebuilt.get(figure, 0))
            for figure in figures
            if self.stored.get(figure, 0) != self.rebuilt.get(figure, 0)
        ]

    def other_months(self) -> dict[str, int]:
        """What the events charged in the months that the workspace's row does not count."""
        return {figure: amount for figure, amount in self.rebuilt.items() if figure not in FIGURES}


@dataclass(frozen=True, slots=True)
class MispricedEvent:
    """An event whose charge is not what its tokens cost by the price list that it names."""

    event_id: str
    workspace_id: str
    charged: Cost
    due: Cost


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """Whether events, balances, holds and collections agree. What waits in the spool is in none of them yet."""

    balances: tuple[Balances, ...]
    # At most `books.MOST_NAMED` of them.
    mispriced: tuple[MispricedEvent, ...]
    spool_waiting: int
    spool_refused: int

    @property
    def differences(self) -> list[Difference]:
        return [difference for row in self.balances for difference in row.differences]

    @property
    def is_clean(self) -> bool:
        return not self.differences and not self.mispriced

    @property
    def written_off_nano_usd(self) -> int:
        return sum(row.written_off_nano_usd for row in self.balances)

    def total(self, figure: str) -> int:
        """Nano-dollars of one figure over all workspaces, as their rows have it."""
        return sum(row.stored[figure] for row in self.balances)


def balances_of_one_moment(connection: Connection) -> list[Balances]:
    """Every workspace's. Call it first in a transaction: a settlement between two reads would look like a loss."""
    use_one_snapshot(connection)
    return balances(connection)


def balances(connection: Connection) -> list[Balances]:
    """Every workspace's, where nothing is charged meanwhile.

    Besides `FIGURES`, each other month has a figure named after it, such as `2026-10`.
    """
    found = [_balances(row) for row in connection.execute(_sums(connection))]
    by_id = {one.workspace_id: one for one in found}
    for row in connection.execute(_POSTED_BY_MONTH):
        if row.workspace_id in by_id:
            by_id[row.workspace_id].stored[row.month] = row.posted_nano_usd
    for row in connection.execute(_charged_by_month(connection)):
        if row.workspace_id in by_id:
            by_id[row.workspace_id].rebuilt[row.month] = int(row.charged)
    return found


def _charged_by_month(connection: Connection) -> Select[Any]:
    month = charged_month(connection).label("month")
    of_row = usage_events.join(workspaces, workspaces.c.id == usage_events.c.workspace_id)
    return (
        select(usage_events.c.workspace_id, month, func.sum(CHARGED).label("charged"))
        .select_from(of_row)
        .where(charged_month(connection) != workspaces.c.month)
        .group_by(usage_events.c.workspace_id, month)
    )


def _sums(connection: Connection) -> Select[Any]:
    of_row = usage_events.c.workspace_id == workspaces.c.id
    this_month = charged_month(connection) == workspaces.c.month
    uncancelled = and_(collections.c.workspace_id == workspaces.c.id, collections.c.state != "void")
    statement = select(
        workspaces,
        select(func.count()).where(of_row).scalar_subquery().label("events"),
        _sum(CHARGED, of_row).label("posted"),
        _sum(usage_events.c.written_off_nano_usd, of_row).label("written_off"),
        _sum(holds.c.amount_nano_usd, holds.c.workspace_id == workspaces.c.id).label("held"),
        _sum(CHARGED, and_(of_row, this_month)).label("month_posted"),
        _sum(collections.c.nano_usd, uncancelled).label("collected"),
    )
    return statement.order_by(workspaces.c.id)


def differences(connection: Connection) -> list[Difference]:
    """Empty when every balance can be rebuilt from the events, the open holds and the collections."""
    return [difference for row in balances_of_one_moment(connection) for difference in row.differences]


def mispriced_events(connection: Connection, *, after: str) -> tuple[list[MispricedEvent], str | None]:
    """Recomputes what the next events after the id `after` cost. Also returns the last one's id, or None at the end.

    In Python's integers: the product of a token count and a price may pass 64 bits.
    """
    rows = connection.execute(_PRICED_EVENTS, {"after": after}).all()
    found = []
    for row in rows:
        charged = Cost(row.subtotal_nano_usd, row.cost_nano_usd, row.minimum_applied)
        due = _due(row)
        if charged != due:
            found.append(MispricedEvent(row.event_id, row.workspace_id, charged, due))
    return found, rows[-1].event_id if rows else None


def _due(row: Row[*tuple[Any, ...]]) -> Cost:
    price = ModelPrice(
        row.model_id, row.input_micro_usd_per_mtok, row.output_micro_usd_per_mtok, row.minimum_nano_usd
    )
    return cost(
        price,
        prompt_tokens=row.prompt_tokens,
        completion_tokens=row.completion_tokens,
        # A request that failed after its first token pays for its tokens, and never the minimum.
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
        written_off_nano_usd=int(fields["written_off"]),
    )


def _figure_order(figure: str) -> tuple[int, str]:
    return (FIGURES.index(figure), "") if figure in FIGURES else (len(FIGURES), figure)


def _sum(column: ColumnElement[int], where: ColumnElement[bool]) -> ColumnElement[int]:
    return select(func.coalesce(func.sum(column), 0)).where(where).scalar_subquery()
