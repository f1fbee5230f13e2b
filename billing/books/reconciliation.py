"""Reconciliation: balances of workspaces and keys recomputed from the rows beneath them."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, delete, func, insert, select, update
from sqlalchemy.engine import Row

from billing.books.mispriced import MispricedEvent
from billing.books.proof import ChangedEvents
from billing.books.wrong_adjustments import WrongAdjustment
from billing.rollups.archived import WrongArchive
from billing.rollups.checkpoint_sql import Sum
from billing.rollups.event_sums import NOTHING_READ, ReadSums, Sums, WrongSum, event_sums, wrong_sums
from billing.rollups.refill import WrongRow, months_of_sums, wrong_rows
from billing.store.database import Database, use_one_snapshot
from billing.store.rollup_tables import usage_months
from billing.store.schema import (
    adjustments,
    api_keys,
    collections,
    holds,
    key_months,
    projects,
    workspace_months,
    workspaces,
)

_POSTED_BY_MONTH = select(
    workspace_months.c.workspace_id, workspace_months.c.month, workspace_months.c.posted_nano_usd
).join(
    workspaces,
    and_(workspaces.c.id == workspace_months.c.workspace_id, workspaces.c.month != workspace_months.c.month),
)
FIGURES = ("posted", "credited", "held", "month_posted", "collected")
_a = adjustments.c

_ADJUSTED_BY_MONTH = (
    select(_a.workspace_id, _a.month, func.sum(_a.nano_usd).label("nano_usd"))
    .join(workspaces, workspaces.c.id == _a.workspace_id)
    .where(_a.month != workspaces.c.month)
    .group_by(_a.workspace_id, _a.month)
)


@dataclass(frozen=True, slots=True)
class Difference:
    """A figure of a workspace's row that its events, adjustments, holds or collections do not add up to."""

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
    adjustments: int = 0

    @property
    def differences(self) -> list[Difference]:
        figures = sorted(self.stored.keys() | self.rebuilt.keys(), key=_figure_order)
        return [
            Difference(self.workspace_id, figure, self.stored.get(figure, 0), self.rebuilt.get(figure, 0))
            for figure in figures
            if self.stored.get(figure, 0) != self.rebuilt.get(figure, 0)
        ]

    def other_months(self) -> dict[str, int]:
        """Charges less credits in the months that the workspace's row does not count."""
        return {figure: amount for figure, amount in self.rebuilt.items() if figure not in FIGURES}


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """Whether events, adjustments, balances, holds and collections agree. What waits in the spool is in none yet."""

    balances: tuple[Balances, ...]
    # At most `proof.MOST_NAMED` of them.
    mispriced: tuple[MispricedEvent, ...]
    spool_waiting: int
    spool_refused: int
    # Of the sums that usage is read from, and of those that were kept when events were proven.
    wrong_sums: tuple[WrongSum, ...] = ()
    # Events that are not those that were proven before.
    changed: tuple[ChangedEvents, ...] = ()
    # The others were proven before, and nothing arrived beside them.
    events_read: int = 0
    # At most `wrong_adjustments.MOST_NAMED` of them.
    wrong_adjustments: tuple[WrongAdjustment, ...] = ()
    # Of the balances of keys with a spend limit.
    of_keys: tuple[Difference, ...] = ()
    # Of the sums that usage is read from, in every column: looked for by a full one alone.
    wrong_rows: tuple[WrongRow, ...] = ()
    # Of months, which the sums of their days do not add up to, in any column.
    unequal_sums: tuple[WrongRow, ...] = ()
    # Of what is kept of archived months.
    wrong_archives: tuple[WrongArchive, ...] = ()

    @property
    def differences(self) -> list[Difference]:
        return [difference for row in self.balances for difference in row.differences] + list(self.of_keys)

    @property
    def is_clean(self) -> bool:
        wrong_events = self.mispriced or self.changed
        wrong_sums = self.wrong_sums or self.wrong_rows or self.unequal_sums or self.wrong_archives
        wrong_rows = self.differences or self.wrong_adjustments
        # What was used and set aside is charged to nobody until an operator has decided.
        return not (wrong_rows or wrong_events or wrong_sums or self.spool_refused)

    @property
    def written_off_nano_usd(self) -> int:
        return sum(row.written_off_nano_usd for row in self.balances)

    def total(self, figure: str) -> int:
        """Nano-dollars of one figure over all workspaces, as their rows have it."""
        return sum(row.stored[figure] for row in self.balances)


def all_of_one_moment(
    connection: Connection, read: Mapping[str, ReadSums] = NOTHING_READ
) -> tuple[list[Balances], list[WrongSum]]:
    """Every workspace's balances, and the sums that are wrong. Call it first in a transaction: a settlement between two
    reads would look like a loss. `read` counts instead of what was kept of these stretches."""
    use_one_snapshot(connection)
    sums = event_sums(connection, read)
    return _all_balances(connection, sums), wrong_sums(connection, sums)


def balances(connection: Connection) -> list[Balances]:
    """Every workspace's, where nothing is charged meanwhile.

    Besides `FIGURES`, each other month has a figure named after it, such as `2026-10`.
    """
    return _all_balances(connection, event_sums(connection))


def differences(connection: Connection) -> list[Difference]:
    """Empty when every balance can be rebuilt from the events, the adjustments, the open holds and the collections, and
    every sum of events from the events."""
    found, wrong = all_of_one_moment(connection)
    return [*(difference for row in found for difference in row.differences), *map(of_sum, wrong)]


def of_sum(wrong: WrongSum) -> Difference:
    """By its money; the number of its events may differ too, or alone."""
    figure = f"{wrong.table} {wrong.month}"
    return Difference(wrong.workspace_id, figure, wrong.stored.charged_nano_usd, wrong.due.charged_nano_usd)


def of_row(wrong: WrongRow) -> Difference:
    """By its money; its tokens may differ alone."""
    stored, due = (side.get("cost_nano_usd", 0) for side in (wrong.stored, wrong.due))
    return Difference(wrong.workspace_id, f"{wrong.table} {' '.join(wrong.key)}", stored, due)


def _all_balances(connection: Connection, sums: Sums) -> list[Balances]:
    charged: dict[str, list[Sum]] = {}
    for one in sums.values():
        charged.setdefault(one.workspace_id, []).append(one)
    found = [_balances(row, charged.get(row.id, [])) for row in connection.execute(_of_workspaces())]
    by_id = {one.workspace_id: one for one in found}
    for row in connection.execute(_POSTED_BY_MONTH):
        if row.workspace_id in by_id:
            by_id[row.workspace_id].stored[row.month] = row.posted_nano_usd
    for row in connection.execute(_ADJUSTED_BY_MONTH):
        if row.workspace_id in by_id:
            rebuilt = by_id[row.workspace_id].rebuilt
            rebuilt[row.month] = rebuilt.get(row.month, 0) + int(row.nano_usd)
    return found


def _of_workspaces() -> Select[Any]:
    """What is in their rows, and what their adjustments, holds and collections add up to."""
    adjusted = _a.workspace_id == workspaces.c.id
    uncancelled = and_(collections.c.workspace_id == workspaces.c.id, collections.c.state != "void")
    statement = select(
        workspaces,
        select(func.count()).where(adjusted).scalar_subquery().label("adjustments"),
        _sum(_a.nano_usd, and_(adjusted, _a.nano_usd > 0)).label("adjusted"),
        _sum(-_a.nano_usd, and_(adjusted, _a.nano_usd < 0)).label("credited"),
        _sum(_a.nano_usd, and_(adjusted, _a.month == workspaces.c.month)).label("month_adjusted"),
        _sum(holds.c.amount_nano_usd, holds.c.workspace_id == workspaces.c.id).label("held"),
        _sum(collections.c.nano_usd, uncancelled).label("collected"),
    )
    return statement.order_by(workspaces.c.id)


def _balances(row: Row[Any], charged: Sequence[Sum]) -> Balances:
    fields = row._mapping
    by_month = {one.month: one.charged_nano_usd for one in charged}
    # PostgreSQL sums integers into a NUMERIC.
    rebuilt = {
        "posted": sum(by_month.values()) + int(row.adjusted),
        "credited": int(row.credited),
        "held": int(row.held),
        "month_posted": by_month.pop(row.month, 0) + int(row.month_adjusted),
        "collected": int(row.collected),
    }
    return Balances(
        workspace_id=row.id,
        events=sum(one.events for one in charged),
        stored={figure: fields[f"{figure}_nano_usd"] for figure in FIGURES},
        rebuilt={**rebuilt, **by_month},
        written_off_nano_usd=sum(one.written_off_nano_usd for one in charged),
        adjustments=row.adjustments,
    )


def _figure_order(figure: str) -> tuple[int, str]:
    return (FIGURES.index(figure), "") if figure in FIGURES else (len(FIGURES), figure)


def _sum(column: ColumnElement[int], where: ColumnElement[bool]) -> ColumnElement[int]:
    return select(func.coalesce(func.sum(column), 0)).where(where).scalar_subquery()


MOST_NAMED = 1000


async def all_wrong_rows(database: Database) -> list[WrongRow]:
    """At most `MOST_NAMED`. Each month of a workspace is read in a snapshot of its own: its sums and its events are
    written together. Raises `LedgerUnavailable`."""
    found: list[WrongRow] = []
    for workspace_id, month in await database.read(months_of_sums):
        found += await database.read(partial(_of_one_moment, workspace_id=workspace_id, month=month))
        if len(found) >= MOST_NAMED:
            break
    return found[:MOST_NAMED]


def _of_one_moment(connection: Connection, *, workspace_id: str, month: str) -> list[WrongRow]:
    use_one_snapshot(connection)
    return wrong_rows(connection, workspace_id, month)


_root = api_keys.alias("root")
_ROOT_ID = func.coalesce(api_keys.c.budget_key_id, api_keys.c.id)


@dataclass(slots=True)
class _Sums:
    """What the rows beneath a balance add up to: nano-USD."""

    held: int = 0
    by_month: dict[str, int] = field(default_factory=dict)

    def figures(self, month: str) -> dict[str, int]:
        others = {name: amount for name, amount in self.by_month.items() if name != month}
        posted, in_month = sum(self.by_month.values()), self.by_month.get(month, 0)
        return {"posted": posted, "held": self.held, "month_posted": in_month, **others}


def key_differences_of_one_moment(connection: Connection) -> list[Difference]:
    """Call it first in a transaction: a settlement between two reads would look like a loss."""
    use_one_snapshot(connection)
    return key_differences(connection)


def key_differences(connection: Connection) -> list[Difference]:
    """Figures of keys' rows that their events and holds do not add up to, where nothing is charged meanwhile."""
    sums, months = _sums(connection), _stored_months(connection)
    found = []
    for row in connection.execute(_BALANCES):
        stored = {
            "posted": row.posted_nano_usd,
            "held": row.held_nano_usd,
            "month_posted": row.month_posted_nano_usd,
            **{month: amount for month, amount in months[row.id].items() if month != row.month},
        }
        found += _differences(row, stored, sums[row.id].figures(row.month))
    return found


def rebuild_keys(connection: Connection) -> list[Difference]:
    """Sets every balance to what its events and holds add up to; returns what was different. Every workspace is locked
    before, so that no money moves meanwhile."""
    found = key_differences(connection)
    if found:
        sums = _sums(connection)
        for row in connection.execute(_BALANCES).all():
            _rebuild(connection, row, sums[row.id])
    return found


_BALANCES = (
    select(api_keys, projects.c.workspace_id)
    .join(projects, projects.c.id == api_keys.c.project_id)
    .where(api_keys.c.month.is_not(None))
    .order_by(api_keys.c.id)
)


def _sums(connection: Connection) -> Mapping[str, _Sums]:
    found: dict[str, _Sums] = defaultdict(_Sums)
    # As exact as the events, which are proven beside them.
    month = usage_months.c.month
    charged = _of_balances(
        select(_root.c.id, month, func.sum(usage_months.c.cost_nano_usd).label("charged")),
        usage_months.c.key_id,
    )
    for row in connection.execute(charged.group_by(_root.c.id, month)):
        found[row.id].by_month[row.month] = int(row.charged)
    held = _of_balances(select(_root.c.id, func.sum(holds.c.amount_nano_usd).label("held")), holds.c.key_id)
    for row in connection.execute(held.group_by(_root.c.id)):
        found[row.id].held = int(row.held)
    return found


def _of_balances(statement: Select[Any], key_id: Any) -> Select[Any]:
    """Of rows with a key, those whose money is on a key's row."""
    return (
        statement.join(api_keys, api_keys.c.id == key_id)
        .join(_root, _root.c.id == _ROOT_ID)
        .where(_root.c.month.is_not(None))
    )


def _stored_months(connection: Connection) -> Mapping[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for row in connection.execute(select(key_months)):
        found[row.key_id][row.month] = row.posted_nano_usd
    return found


def _differences(row: Any, stored: Mapping[str, int], rebuilt: Mapping[str, int]) -> list[Difference]:
    return [
        Difference(
            row.workspace_id, f"{figure} of key {row.id}", stored.get(figure, 0), rebuilt.get(figure, 0)
        )
        for figure in dict.fromkeys((*stored, *rebuilt))
        if stored.get(figure, 0) != rebuilt.get(figure, 0)
    ]


def _rebuild(connection: Connection, row: Any, sums: _Sums) -> None:
    figures = sums.figures(row.month)
    values = {f"{figure}_nano_usd": figures.pop(figure) for figure in ("posted", "held", "month_posted")}
    connection.execute(update(api_keys).where(api_keys.c.id == row.id).values(**values))
    connection.execute(delete(key_months).where(key_months.c.key_id == row.id))
    months = [
        {"key_id": row.id, "month": month, "posted_nano_usd": amount} for month, amount in figures.items()
    ]
    if months:
        connection.execute(insert(key_months), months)
