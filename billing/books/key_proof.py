"""Whether the balances of keys with a spend limit agree with the events and holds of those keys, and their repair."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Select, delete, func, insert, select, update

from billing.books.reconciliation import Difference
from billing.store.database import use_one_snapshot
from billing.store.rollup_tables import usage_months
from billing.store.schema import api_keys, holds, key_months, projects

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
