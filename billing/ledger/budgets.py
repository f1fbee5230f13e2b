"""Budgets by period: held and charged with their workspace, in the same transaction, after its row is locked.

A hold remembers the periods that it was counted in (ids of `budget_counters`, as JSON), and is charged to these,
however late. The time is the database's, the zone the workspace's.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Double,
    Insert,
    Row,
    String,
    and_,
    bindparam,
    case,
    delete,
    func,
    literal,
    or_,
    select,
    update,
)

from billing.caller import EACH_PERSON
from billing.errors import BudgetExceeded
from billing.periods import Period, PeriodKind, period_at, time_zone
from billing.rollups.partitions import second_of
from billing.store.budget_tables import budget_counters, budgets, rate_counters, reached
from billing.store.dates import now_s
from billing.store.schema import api_keys, workspaces
from billing.store.statements import DIALECTS, PrecompiledStatement, in_parts, inserting

# What becomes of a chat that a budget has no room for: it is refused, or goes on in this tier or at the named model.
REFUSE, FLEX, MODEL = "refuse", "flex", "model:"
_UNBOUNDED = 2**63 - 1

_b, _c = budgets.c, budget_counters.c
_key = api_keys.alias("budgeted")
_amount: ColumnElement[int] = bindparam("amount", type_=BigInteger)
_limit: ColumnElement[int] = bindparam("limit", type_=BigInteger)
_committed = _c.posted_nano_usd + _c.held_nano_usd
_began: ColumnElement[float] = bindparam("began", type_=Double)
_of_key = select(func.coalesce(_key.c.budget_key_id, _key.c.id)).where(_key.c.id == bindparam("key"))
_COUNTED = or_(_b.subject.in_(bindparam("subjects", expanding=True)), _b.subject == _of_key.scalar_subquery())
_OF_PROJECT = _b.subject.startswith(bindparam("labels", type_=String))
# With what their present periods follow from.
FOUND = select(budgets, workspaces.c.time_zone, now_s().label("now_s")).join(workspaces)
_OF_WORKSPACE = FOUND.where(_b.workspace_id == bindparam("workspace")).order_by(_b.id)
_FOR = _OF_WORKSPACE.where(_COUNTED)
_IN_FORCE = _OF_WORKSPACE.where(or_(_COUNTED, _OF_PROJECT))


def _reserving(dialect: str) -> Insert:
    """Of the first request in a period it makes the row."""
    row: dict[str, ColumnElement[Any]] = {
        "id": bindparam("counter", type_=String),
        "budget_id": bindparam("budget", type_=String),
        "posted_nano_usd": literal(0, BigInteger),
        "held_nano_usd": _amount,
        "began_at": _began,
        "ends_at": bindparam("ends", type_=Double),
    }
    first = select(*row.values()).where(_amount <= _limit)
    new = inserting(dialect, budget_counters).from_select(list(row), first)
    reserving: Insert = new.on_conflict_do_update(
        index_elements=["id"],
        where=and_(_committed + _amount <= _limit, _committed < bindparam("below", type_=BigInteger)),
        set_={
            "held_nano_usd": _c.held_nano_usd + _amount,
            "began_at": case((_began < _c.began_at, _began), else_=_c.began_at),
        },
    )
    return reserving


_RESERVE = {dialect: PrecompiledStatement(_reserving(dialect)) for dialect in DIALECTS}
_charged = _c.posted_nano_usd + bindparam("charge", type_=BigInteger)
_MOVE = PrecompiledStatement(
    update(budget_counters)
    .where(_c.id == bindparam("counter"), _c.budget_id == _b.id)
    .values(
        held_nano_usd=_c.held_nano_usd - bindparam("freed", type_=BigInteger),
        posted_nano_usd=_charged,
        reached_percent=reached(_b.limit_nano_usd, _charged),
    )
)
_now_reached = reached(_b.limit_nano_usd, _c.posted_nano_usd)
_LOOK_AGAIN = (
    update(budget_counters)
    .where(
        _b.id == bindparam("budget"), _c.budget_id == _b.id, or_(_c.ends_at.is_(None), _c.ends_at > now_s())
    )
    .values(
        reached_percent=_now_reached,
        announced_percent=case(
            (_c.announced_percent > _now_reached, _now_reached), else_=_c.announced_percent
        ),
    )
)
_ROOM = (
    select(func.min(_b.limit_nano_usd - _c.posted_nano_usd - _c.held_nano_usd))
    .join_from(budget_counters, budgets)
    .where(_c.id.in_(bindparam("counters", expanding=True)))
)


@dataclass(frozen=True, slots=True)
class Spender:
    """Whose budgets a request is counted in."""

    workspace_id: str
    project_id: str
    key_id: str
    # As in `Hold`.
    person: str | None = None
    tags: str | None = None
    may_land: bool = False

    def parameters(self) -> dict[str, Any]:
        subjects = [self.workspace_id, self.project_id]
        if self.person is not None:
            subjects.append(label_subject(self.project_id, EACH_PERSON))
        if self.tags is not None:
            subjects += [label_subject(self.project_id, tag) for tag in self.tags.split(",")]
        return {"workspace": self.workspace_id, "subjects": subjects, "key": self.key_id}


def label_subject(project_id: str, label: str) -> str:
    """The subject of a project's budget of each person, or of a tag."""
    return f"{project_id}:{label}"


def reserve(connection: Connection, of: Spender, amount_nano_usd: int, event_id: str) -> str | None:
    """Holds the amount in the present period of each budget; returns what the hold is to remember, None where there is
    no budget. Raises `BudgetExceeded`, of one that refuses if any does, else of one that has no room; then the
    transaction is to be rolled back."""
    taken, refusals = [], []
    for counter in _counters(connection, of):
        limit, below = counter.budget.limit_nano_usd, _lands_from(counter.budget, of)
        if not _reserved(connection, counter, amount_nano_usd, limit, event_id, below):
            refusals.append(_refusal(connection, counter, amount_nano_usd, below))
        taken.append(counter.id)
    if refusals:
        raise min(refusals, key=lambda refusal: (refusal.at_end != REFUSE, refusal.is_early))
    return stored(taken)


def present(connection: Connection, of: Spender, event_id: str) -> list[str]:
    """The present periods of the budgets, for a charge whose hold is gone."""
    counters = _counters(connection, of)
    for counter in counters:
        _reserved(connection, counter, 0, _UNBOUNDED, event_id)
    return [counter.id for counter in counters]


def move(connection: Connection, counters: Sequence[str], *, freed: int, charge: int) -> None:
    """Moves money from held to posted. Of a budget that was removed there is nothing to move."""
    for counter in counters:
        _MOVE.count(connection, {"counter": counter, "freed": freed, "charge": charge})


def look_again(connection: Connection, budget_id: str) -> None:
    """After its limit was changed: what is reached in the periods that last. What is not reached any more is announced
    again once it is."""
    connection.execute(_LOOK_AGAIN, {"budget": budget_id})


def room(connection: Connection, counters: Sequence[str], freed: int) -> int:
    """The room that they leave, once this request's own hold is gone; where none is left of them, more than any column
    holds."""
    least = connection.execute(_ROOM, {"counters": counters}).scalar()
    return 2**63 if least is None else max(0, int(least) + freed)


def stored(counters: Sequence[str]) -> str | None:
    """As a hold and an event have them."""
    return json.dumps(counters, separators=(",", ":")) if counters else None


def remembered(text: str) -> list[str]:
    return list(json.loads(text))


@dataclass(frozen=True, slots=True)
class _Counter:
    """Of a budget, one of `FOUND`, in its present period."""

    budget: Row[Any]
    period: Period
    id: str
    person: str | None

    @classmethod
    def of(cls, budget: Row[Any], person: str | None) -> Self:
        """Of a budget of each person, that of this one."""
        period = period_at(budget.period, datetime.fromtimestamp(budget.now_s, UTC), budget.time_zone)
        of_person = f":{person}" if budget.scope == "person" else ""
        return cls(budget, period, f"{budget.id}:{period.key}{of_person}", person)


def _counters(connection: Connection, of: Spender) -> list[_Counter]:
    return [_Counter.of(budget, of.person) for budget in connection.execute(_FOR, of.parameters())]


def _lands_from(budget: Row[Any], of: Spender) -> int:
    """Once so much is committed, theirs land."""
    if not of.may_land or budget.at_end == REFUSE or budget.land_from_percent == 100:
        return _UNBOUNDED
    return -(-int(budget.limit_nano_usd) * int(budget.land_from_percent) // 100)


def _reserved(
    connection: Connection,
    counter: _Counter,
    amount: int,
    limit: int,
    event_id: str,
    below: int = _UNBOUNDED,
) -> bool:
    """Whether the limit had room, and less than `below` was committed."""
    ends = counter.period.ends_at
    parameters = {
        "counter": counter.id,
        "budget": counter.budget.id,
        "amount": amount,
        "limit": limit,
        "below": below,
        # The id was made earlier, and by another clock: it tells whether its event is archived.
        "began": min(counter.budget.now_s, second_of(event_id)),
        "ends": None if ends is None else ends.timestamp(),
    }
    return _RESERVE[connection.dialect.name].count(connection, parameters) == 1


def _refusal(connection: Connection, counter: _Counter, wanted: int, below: int) -> BudgetExceeded:
    asked = select(_committed).where(_c.id == counter.id)
    committed = int(connection.execute(asked).scalar() or 0)
    is_early = committed >= below
    budget, ends = counter.budget, counter.period.ends_at
    tag = tag_of(budget)
    return BudgetExceeded(
        whose=budget.scope if tag is None else f"tag {tag}",
        budget_id=budget.id,
        span=budget.period,
        resets_at=None if ends is None else ends.astimezone(time_zone(budget.time_zone)),
        limit_nano_usd=below if is_early else budget.limit_nano_usd,
        committed_nano_usd=committed,
        wanted_nano_usd=wanted,
        at_end=budget.at_end,
        is_early=is_early,
    )


def tag_of(budget: Row[Any]) -> str | None:
    return str(budget.subject).partition(":")[2] if budget.scope == "tag" else None


@dataclass(frozen=True, slots=True)
class BudgetState:
    """A budget in its present period. What is left is below zero where the limit was lowered, or usage under an
    allowance passed it. `subject` is the id of the workspace, project or key. Each person has the budget of a project's
    persons alone: what is used of it is None where nobody is named."""

    id: str
    workspace_id: str
    scope: str
    subject: str
    period: PeriodKind
    time_zone: str
    limit_nano_usd: int
    used_nano_usd: int | None
    held_nano_usd: int | None
    resets_at: datetime | None
    created_at: datetime
    at_end: str
    land_from_percent: int
    tag: str | None = None

    @property
    def remaining_nano_usd(self) -> int | None:
        if self.used_nano_usd is None or self.held_nano_usd is None:
            return None
        return self.limit_nano_usd - self.used_nano_usd - self.held_nano_usd


_STATED = (
    "id",
    "workspace_id",
    "scope",
    "period",
    "time_zone",
    "limit_nano_usd",
    "created_at",
    "at_end",
    "land_from_percent",
)


def states(connection: Connection, found: Sequence[Row[Any]], person: str | None = None) -> list[BudgetState]:
    """Of rows of `FOUND`, in their order."""
    return _states(connection, [_Counter.of(row, person) for row in found])


def states_by_label(
    connection: Connection, of: Spender, scope: str, labels: Sequence[str]
) -> dict[str, list[BudgetState]]:
    """The budgets that persons or tags (`scope`) of a project have, by the person or the tag."""
    parameters = {"workspace": of.workspace_id, "labels": label_subject(of.project_id, "")}
    rows = connection.execute(_OF_WORKSPACE.where(_OF_PROJECT, _b.scope == scope), parameters).all()
    pairs = [(row, one) for one in labels for row in rows if scope == "person" or tag_of(row) == one]
    found: dict[str, list[BudgetState]] = {}
    for (_, label), state in zip(
        pairs, _states(connection, [_Counter.of(*pair) for pair in pairs]), strict=True
    ):
        found.setdefault(label, []).append(state)
    return found


def _states(connection: Connection, counters: Sequence[_Counter]) -> list[BudgetState]:
    amounts: dict[str, tuple[int, int]] = {}
    for some in in_parts([counter.id for counter in counters]):
        rows = connection.execute(select(budget_counters).where(_c.id.in_(some)))
        amounts |= {row.id: (row.posted_nano_usd, row.held_nano_usd) for row in rows}

    def state(counter: _Counter) -> BudgetState:
        budget = counter.budget
        is_of_nobody = budget.scope == "person" and counter.person is None
        used, held = (None, None) if is_of_nobody else amounts.get(counter.id, (0, 0))
        return BudgetState(
            **{name: budget._mapping[name] for name in _STATED},
            subject=budget.subject.partition(":")[0],
            tag=tag_of(budget),
            used_nano_usd=used,
            held_nano_usd=held,
            resets_at=counter.period.ends_at,
        )

    return list(map(state, counters))


def in_force(connection: Connection, of: Spender) -> list[BudgetState]:
    """The budgets that a request of theirs is counted in, and the project's others of persons and tags."""
    parameters = of.parameters() | {"labels": label_subject(of.project_id, "")}
    return states(connection, connection.execute(_IN_FORCE, parameters).all(), of.person)


# Every server agrees by then that a period is over, whatever its clock, and what a clock that was set back finds.
KEPT_S = 40 * 86_400.0
DELETED_AT_ONCE = 1000


def forget_old(connection: Connection) -> int:
    """Deletes some periods that are long over, of budgets those in which nothing is held, and of rate limits; the most
    of one kind. There may be more."""
    return max(_forget(connection, _c, _c.held_nano_usd == 0), _forget(connection, rate_counters.c))


def _forget(connection: Connection, of: Any, *free: ColumnElement[bool]) -> int:
    some = select(of.id).where(of.ends_at < now_s() - KEPT_S, *free).limit(DELETED_AT_ONCE)
    # A payment that has one locked is not waited for, or two that wait for each other's rows would deadlock.
    some = some.with_for_update(skip_locked=True)
    return connection.execute(delete(of.id.table).where(of.id.in_(some), *free)).rowcount
