"""Compressions in the books: their receipts, and the saving measured against conversations that were left whole."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Double, Select, and_, case, cast, func, or_, select

from billing.accounts import account_sql
from billing.books.saving import Dimension, Saving, Side, saving_between
from billing.books.usage_report import column_of, named
from billing.ledger.adjustment_rows import DEARER_KEY, LEDGER
from billing.rollups.archived import PeriodArchived, is_archived, last_settled_at
from billing.rollups.usage_sums import CHARGED, event_columns
from billing.store.dates import within
from billing.store.schema import adjustments, projects, usage_events, workspaces

_e, _a = usage_events.c, adjustments.c
_SUMS = (
    "side", "conversations", "requests", "tokens", "cost", "tokens_squared", "cost_squared", "cost_times_tokens"
)  # fmt: skip
_TREATED, _HELD_OUT, _MIXED = "treated", "holdout", "mixed"


@dataclass(frozen=True, slots=True)
class Comparison:
    """`mixed` conversations were on both sides, since the share that is held out was changed: they are left out."""

    group: Mapping[str, str]
    treated: Side
    holdout: Side
    mixed: int = 0

    @property
    def saving(self) -> Saving | None:
        """None: too few to say."""
        return saving_between(self.treated, self.holdout)


def comparisons(
    connection: Connection,
    by: Sequence[Dimension],
    *,
    workspace: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    charged_in: str | None = None,
) -> list[Comparison]:
    """Comparisons of chats settled from `since` to before `until`, or charged in one month: one for
    each group, in the groups' order. Raises `UnknownAccount`, and `PeriodArchived` where chats are archived."""
    archive = last_settled_at(connection)
    if archive is not None:
        if charged_in is None and (since is None or since <= archive):
            raise PeriodArchived("the measured saving", archive)
        if charged_in is not None and is_archived(connection, charged_in):
            raise PeriodArchived(f"the measured saving of {charged_in}", archive)
    columns = [column_of(name) for name in by]
    chats = _conversations(event_columns(connection, columns))
    if workspace is not None:
        chats = chats.where(_e.workspace_id == account_sql.find_workspace(connection, workspace).id)
    chats = within(chats, _e.settled_at, since, until)
    if charged_in is not None:
        # Every event with a conversation says the month itself, and is found by it.
        chats = chats.where(_e.month == charged_in)
    found: dict[tuple[str, ...], dict[str, Side]] = {}
    sides = _sides(chats, columns).subquery()
    groups, source = named(sides, by)
    names = [group.name for group in groups]
    added_up = [sides.c[name] for name in _SUMS]
    for row in connection.execute(select(*groups, *added_up).select_from(source)):
        key = tuple(row._mapping[name] for name in names)
        found.setdefault(key, {})[row.side] = _side(row)
    return [_comparison(dict(zip(names, key, strict=True)), sides) for key, sides in sorted(found.items())]


def _conversations(groups: Sequence[Any]) -> Select[Any]:
    """A row for each conversation within a group."""
    held_out = case((_e.compression == "holdout", 1), else_=0)
    # Less what was given back at once, where its compression made a chat dearer.
    cost = _e.cost_nano_usd + _e.compression_nano_usd + func.coalesce(_a.nano_usd, 0)
    credited = and_(
        _a.workspace_id == _e.workspace_id,
        _a.idempotency_key == DEARER_KEY + _e.event_id,
        _a.actor == LEDGER,
    )
    return (
        select(
            *groups,
            func.min(held_out).label("least"),
            func.max(held_out).label("most"),
            func.count().label("requests"),
            func.sum(_e.original_tokens).label("tokens"),
            func.sum(cost).label("cost"),
        )
        .select_from(usage_events.outerjoin(adjustments, credited))
        .where(_e.conversation.is_not(None), _e.original_tokens.is_not(None))
        # A conversation's hash differs between projects.
        .group_by(*groups, _e.conversation)
    )


def _sides(chats: Select[Any], names: Sequence[str]) -> Select[Any]:
    one = chats.subquery().c
    # By a name of its own: PostgreSQL must see the same expression where it selects and where it groups.
    side = case((one.least != one.most, _MIXED), (one.most == 1, _HELD_OUT), else_=_TREATED).label("side")
    # As floating-point numbers: a square of nano-dollars passes 64 bits.
    tokens, cost = cast(one.tokens, Double), cast(one.cost, Double)
    inner = [one[name] for name in names]
    return select(
        *inner,
        side,
        func.count().label("conversations"),
        func.sum(one.requests).label("requests"),
        func.sum(one.tokens).label("tokens"),
        func.sum(one.cost).label("cost"),
        func.sum(tokens * tokens).label("tokens_squared"),
        func.sum(cost * cost).label("cost_squared"),
        func.sum(cost * tokens).label("cost_times_tokens"),
    ).group_by(*inner, side)


def _side(row: Any) -> Side:
    # PostgreSQL sums integers into a NUMERIC.
    whole = (row.conversations, int(row.requests), int(row.tokens), int(row.cost))
    return Side(*whole, row.tokens_squared, row.cost_squared, row.cost_times_tokens)


def _comparison(group: Mapping[str, str], sides: Mapping[str, Side]) -> Comparison:
    treated, holdout = sides.get(_TREATED, Side()), sides.get(_HELD_OUT, Side())
    mixed = sides.get(_MIXED, Side()).conversations
    return Comparison(group, treated, holdout, mixed)


@dataclass(frozen=True, slots=True)
class StoredReceipt:
    """One compression; `receipt` is JSON."""

    event_id: str
    request_id: str
    workspace: str
    project: str
    model_id: str
    created_at: datetime
    settled_at: datetime
    charged_nano_usd: int
    receipt: str


def receipts(
    connection: Connection,
    *,
    workspace: str | None = None,
    project: str | None = None,
    id: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int,
) -> list[StoredReceipt]:
    """The last `limit`, oldest first; `id` is an event's or a request's. Raises `UnknownAccount`."""
    statement = (
        select(
            _e.event_id,
            _e.request_id,
            workspaces.c.name.label("workspace"),
            projects.c.name.label("project"),
            _e.model_id,
            _e.created_at,
            _e.settled_at,
            CHARGED.label("charged_nano_usd"),
            _e.receipt,
        )
        .join(workspaces, workspaces.c.id == _e.workspace_id)
        .join(projects, projects.c.id == _e.project_id)
        .where(_e.receipt.is_not(None))
        .order_by(_e.settled_at.desc(), _e.event_id.desc())
        .limit(limit)
    )
    if workspace is not None:
        statement = statement.where(_e.workspace_id == account_sql.find_workspace(connection, workspace).id)
    if project is not None:
        statement = statement.where(_e.project_id == account_sql.find_project(connection, project).id)
    if id is not None:
        statement = statement.where(or_(_e.event_id == id, _e.request_id == id))
    rows = connection.execute(within(statement, _e.settled_at, since, until)).all()
    return [StoredReceipt(**row._mapping) for row in reversed(rows)]
