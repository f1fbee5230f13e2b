"""Where the sums of a month are not those of its days, in any column: without a look at events."""

from sqlalchemy import Connection, func, literal, or_, select, union_all

from billing.rollups.refill import WrongRow
from billing.store.rollup_tables import SUMS, usage_days, usage_months

_KEY = ("workspace_id", "settled_month", "month", "project_id", "key_id", "model_id", "route")
MOST_NAMED = 1000


def unequal_sums(connection: Connection) -> list[WrongRow]:
    """At most `MOST_NAMED`, each with what `usage_months` has as `stored`, and what `usage_days` add up to as `due`."""
    settled = func.substr(usage_days.c.day, 1, 7).label("settled_month")
    of_day = [settled if name == "settled_month" else usage_days.c[name] for name in _KEY]
    sides = union_all(
        select(
            *(usage_months.c[name] for name in _KEY),
            *(usage_months.c[name].label(f"stored_{name}") for name in SUMS),
            *(literal(0).label(f"due_{name}") for name in SUMS),
        ),
        select(
            *of_day,
            *(literal(0).label(f"stored_{name}") for name in SUMS),
            *(usage_days.c[name].label(f"due_{name}") for name in SUMS),
        ),
    ).subquery()
    stored, due = ([func.sum(sides.c[f"{side}_{name}"]) for name in SUMS] for side in ("stored", "due"))
    groups = [sides.c[name] for name in _KEY]
    differing = or_(*(one != other for one, other in zip(stored, due, strict=True)))
    found = select(*groups, *stored, *due).group_by(*groups).having(differing)
    rows = connection.execute(found.order_by(*groups).limit(MOST_NAMED)).all()
    return [_wrong(tuple(row)) for row in rows]


def _wrong(row: tuple[object, ...]) -> WrongRow:
    owner, *key = (str(value) for value in row[: len(_KEY)])
    # PostgreSQL sums integers into a NUMERIC.
    sums = [int(str(value)) for value in row[len(_KEY) :]]
    both = zip(SUMS, sums[: len(SUMS)], sums[len(SUMS) :], strict=True)
    differing = [(name, one, other) for name, one, other in both if one != other]
    return WrongRow(
        owner,
        "usage_months",
        tuple(key),
        {name: one for name, one, _ in differing},
        {name: other for name, _, other in differing},
    )
