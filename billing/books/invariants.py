"""Invariants of the books: each stored sum is what the rows beneath it add up to, or a SELECT names it."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import (
    CTE,
    JSON,
    ColumnElement,
    Connection,
    Select,
    Table,
    case,
    cast,
    func,
    literal,
    or_,
    select,
    true,
    union,
    union_all,
)

from billing.rollups.archived import archived_bound
from billing.rollups.due_sums import SPANS, days_by_month, due_sums, key_of, stored_sums
from billing.rollups.event_sums import event_sums
from billing.rollups.partitions import second_of
from billing.store.budget_tables import budget_counters, budgets
from billing.store.database import Database, use_one_snapshot
from billing.store.rollup_tables import SUMS, usage_days, usage_months
from billing.store.schema import (
    adjustments,
    api_keys,
    collections,
    holds,
    key_months,
    projects,
    usage_events,
    workspace_months,
    workspaces,
)

MOST_NAMED = 1000
FIGURES = ("posted", "credited", "held", "month_posted", "collected")
KEY_FIGURES = ("posted", "held", "month_posted")
CHARGES = ("events", "cost_nano_usd", "written_off_nano_usd")


@dataclass(frozen=True, slots=True)
class Violation:
    """A row of `table` that is not what the rows beneath it add up to; `stored` and `due` have its sums by name.

    `key` is the row's, without the workspace: of a balance, an id and one of `FIGURES` or a month; of sums compared by
    what they charge, the month and an empty text; else, a day or month of settlement, and what `key_of` names.
    """

    workspace_id: str
    table: str
    key: tuple[str, ...]
    stored: Mapping[str, int]
    due: Mapping[str, int]

    @property
    def figure(self) -> str:
        if self.table == "workspaces":
            return self.key[1]
        if self.table == "api_keys":
            return f"{self.key[1]} of key {self.key[0]}"
        if self.table == "budget_counters":
            return f"{self.key[1]} of budget {self.key[0]}"
        return " ".join([self.table, *filter(None, self.key)])

    @property
    def month(self) -> str:
        """That of settlement, where the key has one."""
        return self.key[0][:7]

    @property
    def stored_nano_usd(self) -> int:
        return self.stored["cost_nano_usd"]

    @property
    def rebuilt_nano_usd(self) -> int:
        return self.due["cost_nano_usd"]

    @property
    def difference_nano_usd(self) -> int:
        return self.stored_nano_usd - self.rebuilt_nano_usd

    @property
    def stored_otherwise(self) -> dict[str, int]:
        """Those of the stored sums that are not what is due."""
        return {name: amount for name, amount in self.stored.items() if amount != self.due[name]}

    @property
    def due_otherwise(self) -> dict[str, int]:
        return {name: self.due[name] for name in self.stored_otherwise}


@dataclass(frozen=True, slots=True)
class Invariant:
    """The rows of `stored`, added up, are those of `due`, for each workspace, table and key."""

    key: Sequence[str]
    sums: Sequence[str]
    stored: Sequence[Select[Any]]
    due: Sequence[Select[Any]]

    def violations(self, connection: Connection, limit: int | None = None) -> list[Violation]:
        return [self._violation(tuple(row)) for row in connection.execute(self._unequal().limit(limit))]

    def _unequal(self) -> Select[Any]:
        sides = union_all(
            *(self._side(one, "stored", "due") for one in self.stored),
            *(self._side(one, "due", "stored") for one in self.due),
        ).subquery()
        stored, due = ([func.sum(sides.c[f"{of}_{name}"]) for name in self.sums] for of in ("stored", "due"))
        groups = [sides.c[name] for name in ("workspace_id", "of_table", *self.key)]
        differing = or_(*(one != other for one, other in zip(stored, due, strict=True)))
        return select(*groups, *stored, *due).group_by(*groups).having(differing).order_by(*groups)

    def _side(self, rows: Select[Any], own: str, other: str) -> Select[Any]:
        one = rows.subquery().c
        amounts = {f"{own}_{name}": one[name] for name in self.sums}
        amounts |= {f"{other}_{name}": literal(0) for name in self.sums}
        return select(
            *(one[name] for name in ("workspace_id", "of_table", *self.key)),
            *(
                amounts[f"{of}_{name}"].label(f"{of}_{name}")
                for of in ("stored", "due")
                for name in self.sums
            ),
        )

    def _violation(self, row: tuple[Any, ...]) -> Violation:
        workspace_id, table, *key = row[: 2 + len(self.key)]
        # PostgreSQL sums integers into a NUMERIC.
        amounts = list(map(int, row[2 + len(self.key) :]))
        stored, due = amounts[: len(self.sums)], amounts[len(self.sums) :]
        both = (dict(zip(self.sums, side, strict=True)) for side in (stored, due))
        return Violation(workspace_id, table, tuple(key), *both)


Sides = tuple[list[Select[Any]], list[Select[Any]]]
_w, _a, _u, _k = workspaces.c, adjustments.c, usage_months.c, api_keys.c
_root = api_keys.alias("root").c


def _row(table: str, workspace_id: Any, id: Any, field: Any, nano_usd: Any) -> Select[Any]:
    return select(
        workspace_id.label("workspace_id"),
        literal(table).label("of_table"),
        id.label("id"),
        field.label("field"),
        literal(0).label("events"),
        nano_usd.label("cost_nano_usd"),
        literal(0).label("written_off_nano_usd"),
    )


def _in_month(month: Any, current: Any) -> ColumnElement[str]:
    return case((month == current, "month_posted"), else_=month)


def _workspaces(charged: CTE) -> Sides:
    """Their rows, and their events, adjustments, holds and collections."""
    row, c, other = partial(_row, "workspaces", _w.id, _w.id), charged.c, workspace_months.c
    stored = [row(literal(figure), _w[f"{figure}_nano_usd"]) for figure in FIGURES]
    months = row(other.month, other.posted_nano_usd).where(
        other.workspace_id == _w.id, other.month != _w.month
    )
    adjusted = case((_a.nano_usd > 0, "posted"), else_="credited")
    due = [
        row(literal("posted"), c.cost_nano_usd).where(c.workspace_id == _w.id),
        row(_in_month(c.month, _w.month), c.cost_nano_usd).where(c.workspace_id == _w.id),
        row(adjusted, func.abs(_a.nano_usd)).where(_a.workspace_id == _w.id),
        row(_in_month(_a.month, _w.month), _a.nano_usd).where(_a.workspace_id == _w.id),
        row(literal("held"), holds.c.amount_nano_usd).where(holds.c.workspace_id == _w.id),
        row(literal("collected"), collections.c.nano_usd).where(
            collections.c.workspace_id == _w.id, collections.c.state != "void"
        ),
    ]
    return [*stored, months], due


def _keys(_: CTE) -> Sides:
    """The rows of those with a spend limit, and the sums and holds of them and of those that were rotated into them:
    the sums are as exact as the events, which are proven beside them."""

    def row(field: Any, nano_usd: Any) -> Select[Any]:
        one = _row("api_keys", projects.c.workspace_id, _root.id, field, nano_usd)
        return one.where(projects.c.id == _root.project_id, _root.month.is_not(None))

    def beneath(field: Any, nano_usd: Any, key_id: Any) -> Select[Any]:
        return row(field, nano_usd).where(_k.id == key_id, _root.id == func.coalesce(_k.budget_key_id, _k.id))

    other = key_months.c
    stored = [row(literal(figure), _root[f"{figure}_nano_usd"]) for figure in KEY_FIGURES]
    months = row(other.month, other.posted_nano_usd).where(
        other.key_id == _root.id, other.month != _root.month
    )
    by_month = select(_u.key_id, _u.month, func.sum(_u.cost_nano_usd).label("nano_usd"))
    charged = by_month.group_by(_u.key_id, _u.month).cte("charged_to_keys").c
    due = [
        beneath(literal("posted"), charged.nano_usd, charged.key_id),
        beneath(_in_month(charged.month, _root.month), charged.nano_usd, charged.key_id),
        beneath(literal("held"), holds.c.amount_nano_usd, holds.c.key_id),
    ]
    return [*stored, months], due


def _charges(table: Table, charged: CTE) -> Sides:
    """What the sums that usage is read from say was charged, and the events."""
    counted = (("requests", "events"), *((name, name) for name in CHARGES[1:]))
    where = [table.c.workspace_id, literal(table.name).label("of_table"), table.c.month.label("id")]
    sums = [func.sum(table.c[column]).label(name) for column, name in counted]
    stored = select(*where, literal("").label("field"), *sums).group_by(table.c.workspace_id, table.c.month)
    c = charged.c
    of = [
        c.workspace_id,
        literal(table.name).label("of_table"),
        c.month.label("id"),
        literal("").label("field"),
    ]
    return [stored], [select(*of, *(c[name] for name in CHARGES))]


BALANCES: Mapping[str, Callable[[CTE], Sides]] = {
    "workspaces": _workspaces,
    "api_keys": _keys,
    "usage_days": partial(_charges, usage_days),
    "usage_months": partial(_charges, usage_months),
}


def violations(connection: Connection, distrusted: Collection[str] = ()) -> list[Violation]:
    """Those of `BALANCES`, in their order. Where stretches begin that are `distrusted`, their events are read instead
    of what was kept of them."""
    charged = event_sums(connection, distrusted).cte("charged")
    sides = [of(charged) for of in BALANCES.values()]
    stored, due = ([one for side in sides for one in side[which]] for which in (0, 1))
    return sorted(Invariant(("id", "field"), CHARGES, stored, due).violations(connection), key=_in_order)


def wrong_counters(connection: Connection, *, full: bool) -> list[Violation]:
    """Periods of budgets in which other is held than their holds add up to, or, with `full`, other posted than their
    events: all events of budgets are read for it, and none of periods in which one may be archived."""
    c = budget_counters.c
    row = partial(_row, "budget_counters", budgets.c.workspace_id, c.id)
    own: list[ColumnElement[bool]] = [budgets.c.id == c.budget_id]
    sources: dict[str, tuple[Table, ColumnElement[int]]] = {"held": (holds, holds.c.amount_nano_usd)}
    if full:
        charged = usage_events.c.cost_nano_usd - usage_events.c.written_off_nano_usd
        sources["posted"] = (usage_events, charged)
        archived = connection.execute(select(archived_bound())).scalar()
        if archived is not None:
            own.append(c.began_at > second_of(archived))
    stored, due = [], []
    for figure, (table, nano_usd) in sources.items():
        amount = c[f"{figure}_nano_usd"]
        # In most periods that are kept nothing is held: what is nothing is not summed.
        stored.append(row(literal(figure), amount).where(*own, amount != 0))
        counted = _by_counter(connection, table, nano_usd)
        one = counted.subquery().c
        due.append(row(literal(figure), one.nano_usd).where(*own, one.counter == c.id))
    found = Invariant(("id", "field"), CHARGES, stored, due).violations(connection)
    return sorted(found, key=lambda one: (one.workspace_id, one.key))


def _by_counter(connection: Connection, table: Table, nano_usd: ColumnElement[int]) -> Select[Any]:
    """The amount of each row for each of the periods that its `budgets` name."""
    some = table.c.budgets.is_not(None)
    if connection.dialect.name == "sqlite":
        named = func.json_each(table.c.budgets).table_valued("value")
        rows = select(named.c.value.label("counter"), nano_usd.label("nano_usd"))
        return rows.select_from(table.join(named, true())).where(some)
    each = func.json_array_elements_text(cast(table.c.budgets, JSON))
    return select(each.label("counter"), nano_usd.label("nano_usd")).where(some)


def differences(connection: Connection) -> list[Violation]:
    """`violations` and `wrong_counters` of one moment. Call it first in a transaction: a settlement between two reads
    would look like a loss."""
    use_one_snapshot(connection)
    return [*violations(connection), *wrong_counters(connection, full=True)]


def _in_order(one: Violation) -> tuple[Any, ...]:
    id, field = one.key
    rank = FIGURES.index(field) if field in FIGURES else len(FIGURES)
    return list(BALANCES).index(one.table), one.workspace_id, id, rank, field


def unequal_sums(connection: Connection) -> list[Violation]:
    """At most `MOST_NAMED` rows of `usage_months` that the days do not add up to."""
    key = ("settled_month", *key_of(usage_months))
    stored = stored_sums(connection, usage_months, "settled_month")
    months = Invariant(key, SUMS, [stored], [days_by_month()])
    return months.violations(connection, MOST_NAMED)


async def wrong_rows(database: Database) -> list[Violation]:
    """At most `MOST_NAMED` rows of sums that are not what their events add up to, in any column. Each month of a
    workspace is read in a snapshot of its own: its sums and its events are written together. Raises
    `LedgerUnavailable`."""
    found: list[Violation] = []
    for workspace_id, month in await database.read(_months_of_sums):
        found += await database.read(partial(_wrong_rows, workspace_id=workspace_id, month=month))
        if len(found) >= MOST_NAMED:
            break
    return found[:MOST_NAMED]


def _wrong_rows(connection: Connection, *, workspace_id: str, month: str) -> list[Violation]:
    use_one_snapshot(connection)
    found = []
    for table, span in SPANS:
        stored = stored_sums(connection, table, span, workspace_id, month)
        due = due_sums(connection, table, span, workspace_id, month)
        found += Invariant((span, *key_of(table)), SUMS, [stored], [due]).violations(connection)
    return found


def _months_of_sums(connection: Connection) -> list[tuple[str, str]]:
    """Every workspace with every month of settlements that sums have of it, such as `2026-11`: by month, since its
    events lie together."""
    every = union(
        *(select(of.c.workspace_id, func.substr(of.c[span], 1, 7).label("settled")) for of, span in SPANS)
    ).subquery()
    statement = select(every.c.workspace_id, every.c.settled).order_by(every.c.settled, every.c.workspace_id)
    return [(row[0], row[1]) for row in connection.execute(statement)]
