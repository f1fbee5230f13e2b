"""The proof of a month: its leaves of the transparency log, as a file that `billing/transparency/verify.py` checks.

It is of a workspace, or of one project of it: then it has the events of the project and the adjustments that are of
these, and says nothing of the rest. Sums are those of the statement, which are kept apart from the events.
"""

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain, islice
from types import MappingProxyType
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, func, or_, select, tuple_

from billing.accounts import account_sql
from billing.books.saving import LINES
from billing.books.usage_report import usage
from billing.errors import NoProof
from billing.rollups.archived import archived_until
from billing.store.database import let_others_run, use_one_snapshot
from billing.store.dates import month_bounds
from billing.store.log_tables import log_pending
from billing.store.rollup_tables import archived_days, archived_months
from billing.store.schema import adjustments, prices, usage_events
from billing.transparency import log_sql
from billing.transparency.leaves import Leaf, digest, leaf
from billing.transparency.notes import BadNote, Signer, opened
from billing.transparency.places import Reading, indices
from billing.transparency.tree import Tree

FORMAT = "pith-proof/1"
ROWS_AT_ONCE = 1000
ROWS_IN_A_TURN = 50
IDS_AT_ONCE = 400
# Usage that is spooled comes later than it was settled: looked for this far back, and all the way where sums say so.
SPOOLED = timedelta(days=7)
# And later where another clock is behind, by no more than the verifier allows.
AHEAD = timedelta(days=2)
_SUMMED = ("requests", "prompt_tokens", "completion_tokens", "cached_tokens", "written_off_nano_usd")
NONE_ARCHIVED: Mapping[str, Sequence[Mapping[str, Any]]] = MappingProxyType({})
_e, _a, _p = usage_events.c, adjustments.c, prices.c
_d, _m = archived_days.c, archived_months.c


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of what one proof may read; None: any."""

    leaves: int | None = None
    bundles: int | None = None


@dataclass(frozen=True, slots=True)
class Logged:
    """`index` is None where the log has no such leaf: the row was changed after it was logged, or the log was."""

    index: int | None
    leaf: Leaf


@dataclass(frozen=True, slots=True)
class StatementProof:
    """All that the file has, but for the promises of what is pending."""

    workspace_id: str
    project_id: str | None
    month: str
    made_at: datetime
    checkpoint: str
    prices: Sequence[Mapping[str, Any]]
    leaves: Sequence[Logged]
    pending: Sequence[Leaf]
    nodes: Sequence[bytes]
    consistency: Mapping[int, Sequence[bytes]]
    totals: Mapping[str, Any]

    @property
    def missing(self) -> int:
        return sum(one.index is None for one in self.leaves)

    def pieces(self, signer: Signer) -> Iterator[str]:
        """The file's text, a bounded number of leaves at a time. Raises `NoProof` where the log is another's."""
        try:
            opened(self.checkpoint, signer.verifier)
        except BadNote as error:
            raise NoProof("the log was signed with another secret than this server's") from error
        return self._written(signer)

    def _written(self, signer: Signer) -> Iterator[str]:
        fields = {
            "format": FORMAT,
            "origin": signer.origin,
            "key": str(signer.verifier),
            "checkpoint": self.checkpoint,
            "workspace": self.workspace_id,
            "project": self.project_id,
            "month": self.month,
            "made_at": f"{self.made_at:%Y-%m-%dT%H:%M:%S.%fZ}",
            "totals": self.totals,
            "prices": self.prices,
            "consistency": [{"from": size, "path": _base64(path)} for size, path in self.consistency.items()],
            "pending": [{**_texts(one), "note": signer.receipt(digest(one.record))} for one in self.pending],
            "nodes": _base64(self.nodes),
        }
        yield json.dumps(fields)[:-1] + ', "leaves": ['
        separator = "\n"
        left = iter(self.leaves)
        while some := list(islice(left, ROWS_AT_ONCE)):
            lines = (json.dumps({"index": one.index, **_texts(one.leaf)}) for one in some)
            yield separator + ",\n".join(lines)
            separator = ",\n"
        yield "\n]}\n"


def _texts(of: Leaf) -> dict[str, str]:
    return {"record": of.record, "posting": of.posting}


def _base64(hashes: Iterable[bytes]) -> list[str]:
    return [b64encode(one).decode() for one in hashes]


@dataclass(frozen=True, slots=True)
class _Scope:
    """Whose month it is. `project_id` is None for a workspace."""

    owner: str
    project_id: str | None
    month: str

    def own(self, table: Any) -> ColumnElement[bool]:
        is_own = table.workspace_id == self.owner
        return is_own if self.project_id is None else and_(is_own, table.project_id == self.project_id)


def archived_parts(
    connection: Connection, workspace: str, month: str, project_id: str | None = None
) -> tuple[str, list[str]]:
    """The workspace's id, and the months whose files have events that a proof of this one needs. Files are of the month
    in which requests began: the last of these are charged to the next. Raises `UnknownAccount` and `NoProof`."""
    of = _Scope(account_sql.find_workspace(connection, workspace).id, project_id, month)
    of_month = or_(_d.month == month, _d.day.between(month, f"{month}-99"))
    there = (
        select(_d.archived_month, _m.in_log)
        .distinct()
        .join(archived_months, _m.month == _d.archived_month)
        .where(_m.state != "sealed", of.own(_d), of_month)
        .order_by(_d.archived_month)
    )
    found = connection.execute(there).all()
    if not all(row.in_log for row in found):
        raise NoProof(f"some of the events of {month} were archived before there was a log")
    return of.owner, [row.archived_month for row in found]


def statement_proof(
    connection: Connection,
    workspace: str,
    month: str,
    *,
    project_id: str | None = None,
    from_size: int | None = None,
    made_at: datetime,
    bounds: Bounds = Bounds(),
    archived: Mapping[str, Sequence[Mapping[str, Any]]] = NONE_ARCHIVED,
) -> StatementProof:
    """In one snapshot; call it first in a transaction. `from_size`: of an older checkpoint, to be proven a beginning of
    this one. `archived`: the workspace's events in the files of `archived_parts`. Raises `UnknownAccount`, `NoProof`,
    `LogDamaged` and `ValueError`."""
    month_bounds(month)
    use_one_snapshot(connection)
    owner, parts = archived_parts(connection, workspace, month, project_id)
    if not archived.keys() >= set(parts):
        raise NoProof(f"some of the events of {month} are archived: ask the operator for its file")
    of = _Scope(owner, project_id, month)
    head = log_sql.head(connection)
    if not head.note:
        raise NoProof("the log has no signed checkpoint yet: a server signs one when it starts")
    reading = Reading(bounds.bundles)
    tree = log_sql.read_tree(connection, reading.known)
    totals = _totals(connection, of)
    due = sum(line["requests"] for line in totals["usage"])
    _require_few(month, due, bounds)
    rows = _events(connection, of, due, bounds, list(chain(*archived.values())))
    rows += _read(connection, select(adjustments).where(of.own(_a), _a.month == month))
    leaves, pending = _placed(connection, {one.id: one.leaf for one in rows}, reading)
    return StatementProof(
        owner,
        project_id,
        month,
        made_at,
        head.note,
        _prices(connection, {one.price for one in rows if one.price}),
        leaves,
        pending,
        list(tree.around([one.index for one in leaves if one.index is not None])),
        _consistency(tree, from_size),
        totals,
    )


def _require_few(month: str, events: int, bounds: Bounds) -> None:
    """Raises `NoProof`."""
    if bounds.leaves is not None and events > bounds.leaves:
        raise NoProof(f"{month} has more than {bounds.leaves} events: ask the operator for its file")


def _totals(connection: Connection, of: _Scope) -> dict[str, Any]:
    lines = usage(connection, LINES, workspace=of.owner, project=of.project_id, charged_in=of.month)
    adjusted = select(func.sum(_a.nano_usd)).where(of.own(_a), _a.month == of.month)
    stated = [
        {
            "project_id": line.group["project_id"],
            "model_id": line.group["model"],
            "charged_nano_usd": line.cost_nano_usd,
            **{name: getattr(line, name) for name in _SUMMED},
        }
        for line in lines
    ]
    return {
        "usage": sorted(stated, key=lambda line: (line["project_id"], line["model_id"])),
        "adjusted_nano_usd": int(connection.execute(adjusted).scalar() or 0),
    }


@dataclass(frozen=True, slots=True)
class _Row:
    """What of a row is needed once its leaf is made."""

    id: str
    leaf: Leaf
    paired_with: str | None = None
    price: tuple[int, str] | None = None


def _events(
    connection: Connection, of: _Scope, due: int, bounds: Bounds, archived: Sequence[Mapping[str, Any]]
) -> list[_Row]:
    """Those that were charged in the month, those that were settled in it and charged when the ledger was there again,
    and the other events of their requests. What is archived may be in the ledger too."""
    since, until = month_bounds(of.month)
    settled_in = and_(_e.settled_at >= since, _e.settled_at < until)
    charged_in = or_(_e.month == of.month, and_(_e.month.is_(None), settled_in))
    near = _e.settled_at.between(since - SPOOLED, until + AHEAD)
    own = of.own(_e)
    kept = [row for row in archived if row["month"] == of.month or since <= row["settled_at"] < until]
    kept = [row for row in kept if of.project_id in (None, row["project_id"])]
    found = _read(connection, select(usage_events).where(own, charged_in, near))
    charged = {one.id for one in found}
    charged |= {row["event_id"] for row in kept if row["month"] in (None, of.month)}
    if len(charged) < due:
        found = _read(connection, select(usage_events).where(own, charged_in))
    # They are promised by when they were settled, so that their replies' receipts are of this month.
    elsewhere = select(usage_events).where(own, settled_in, _e.month != of.month)
    most = None if bounds.leaves is None else max(bounds.leaves - len(found), 0)
    found += _read(connection, elsewhere if most is None else elsewhere.limit(most + 1))
    _require_few(of.month, len(found), bounds)
    rows = {one.id: one for one in (*map(_row, kept), *found)}
    return [*rows.values(), *_others(connection, of, rows, archived)]


def _others(
    connection: Connection, of: _Scope, rows: Mapping[str, _Row], archived: Sequence[Mapping[str, Any]]
) -> list[_Row]:
    """The other events of requests of which there is one."""
    wanted = {one.paired_with for one in rows.values() if one.paired_with} - rows.keys()
    found = [_row(row) for row in archived if row["event_id"] in wanted]
    for some in _parts(sorted(wanted - {one.id for one in found})):
        is_wanted = and_(_e.workspace_id == of.owner, _e.event_id.in_(some))
        pairs = _read(connection, select(usage_events).where(is_wanted))
        gone = set(some) - {one.id for one in pairs}
        if gone and min(gone) < archived_until(connection):
            raise NoProof(f"of some requests of {of.month} an event is archived with another month")
        found += pairs
    return found


def _read(connection: Connection, statement: Select[Any]) -> list[_Row]:
    rows = connection.execution_options(yield_per=ROWS_AT_ONCE).execute(statement).mappings()
    found: list[_Row] = []
    for number, row in enumerate(rows):
        if number % ROWS_IN_A_TURN == 0:
            let_others_run(connection)
        found.append(_row(dict(row)))
    return found


def _row(row: Mapping[str, Any]) -> _Row:
    if "id" in row:
        return _Row(row["id"], leaf(row))
    return _Row(row["event_id"], leaf(row), row["paired_with"], (row["pricing_version"], row["model_id"]))


def _placed(
    connection: Connection, leaves: Mapping[str, Leaf], reading: Reading
) -> tuple[list[Logged], list[Leaf]]:
    """The leaves by their index, those without one first, and those that wait for the log."""
    waiting: set[str] = set()
    for some in _parts(sorted(leaves)):
        waiting.update(connection.scalars(select(log_pending.c.id).where(log_pending.c.id.in_(some))))
    places = indices(
        connection, {id_: one.entry for id_, one in leaves.items() if id_ not in waiting}, reading
    )
    logged = [Logged(places.get(id_), one) for id_, one in leaves.items() if id_ not in waiting]
    pending = [leaves[id_] for id_ in sorted(waiting)]
    return sorted(logged, key=lambda one: -1 if one.index is None else one.index), pending


def _prices(connection: Connection, named: set[tuple[int, str]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for some in _parts(sorted(named)):
        of_some: ColumnElement[bool] = tuple_(_p.version, _p.model_id).in_(some)
        rows = connection.execute(select(prices).where(of_some).order_by(_p.version, _p.model_id)).mappings()
        found += ({name: value for name, value in row.items() if value is not None} for row in rows)
    return found


def _consistency(tree: Tree, from_size: int | None) -> dict[int, list[bytes]]:
    if from_size is None:
        return {}
    if not 0 < from_size <= tree.size:
        raise ValueError(
            f"from_size: must be between 1 and {tree.size}, the leaves of the log, not {from_size}"
        )
    return {from_size: tree.consistency(from_size)}


def _parts(of: Sequence[Any]) -> Iterator[list[Any]]:
    for begin in range(0, len(of), IDS_AT_ONCE):
        yield list(of[begin : begin + IDS_AT_ONCE])
