"""The proof of a month: its leaves of the transparency log, as a file that `billing/transparency/verify.py` checks.

It is of a workspace, or of one project of it: then it has the events of the project and the adjustments that are of
these, and says nothing of the rest. Sums are those of the statement, which are kept apart from the events.
"""

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, func, or_, select, tuple_

from billing.accounts import account_sql
from billing.books.usage_report import usage
from billing.errors import NoProof
from billing.rollups.archived import archived_until, is_archived
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
WHILE_THERE = "a proof is made while they are in the ledger"
ROWS_AT_ONCE = 1000
ROWS_IN_A_TURN = 50
IDS_AT_ONCE = 400
# Usage that is spooled comes later than it was settled: looked for this far back, and all the way where sums say so.
SPOOLED = timedelta(days=7)
# And later where another clock is behind, by no more than the verifier allows.
AHEAD = timedelta(days=2)
_SUMMED = ("requests", "prompt_tokens", "completion_tokens", "cached_tokens", "written_off_nano_usd")
_e, _a, _p, _d = usage_events.c, adjustments.c, prices.c, archived_days.c


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


def statement_proof(
    connection: Connection,
    workspace: str,
    month: str,
    *,
    project_id: str | None = None,
    from_size: int | None = None,
    made_at: datetime,
    bounds: Bounds = Bounds(),
) -> StatementProof:
    """In one snapshot; call it first in a transaction. `from_size`: of an older checkpoint, to be proven a beginning of
    this one. Raises `UnknownAccount`, `NoProof`, `LogDamaged` and `ValueError`."""
    month_bounds(month)
    use_one_snapshot(connection)
    owner = account_sql.find_workspace(connection, workspace).id
    if is_archived(connection, month):
        raise NoProof(f"the events of {month} are archived: {WHILE_THERE}")
    _require_whole(connection, owner, month, project_id)
    head = log_sql.head(connection)
    if not head.note:
        raise NoProof("the log has no signed checkpoint yet: a server signs one when it starts")
    reading = Reading(bounds.bundles)
    tree = log_sql.read_tree(connection, reading.known)
    totals = _totals(connection, owner, month, project_id)
    events = sum(line["requests"] for line in totals["usage"])
    _require_few(month, events, bounds)
    rows = [
        *_events(connection, owner, month, project_id, events, bounds),
        *_adjustments(connection, owner, month, project_id),
    ]
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


def _require_whole(connection: Connection, owner: str, month: str, project_id: str | None) -> None:
    """Raises `NoProof`. Files are by the month in which requests began: the last of them are charged to the next."""
    of_month = or_(_d.month == month, _d.day.between(month, f"{month}-99"))
    there = (
        select(_d.archived_month)
        .join(archived_months, archived_months.c.month == _d.archived_month)
        .where(archived_months.c.state != "sealed", _d.workspace_id == owner, of_month)
    )
    if project_id is not None:
        there = there.where(_d.project_id == project_id)
    if connection.execute(there.limit(1)).first() is not None:
        raise NoProof(
            f"some of the events of {month} are archived, whose requests began before: {WHILE_THERE}"
        )


def _totals(connection: Connection, owner: str, month: str, project_id: str | None) -> dict[str, Any]:
    lines = usage(connection, ("project", "model"), workspace=owner, project_id=project_id, charged_in=month)
    adjusted = select(func.sum(_a.nano_usd)).where(*_of_month(owner, month, project_id))
    return {
        "usage": sorted(
            (
                {
                    "project_id": line.group["project_id"],
                    "model_id": line.group["model"],
                    "charged_nano_usd": line.cost_nano_usd,
                    **{name: getattr(line, name) for name in _SUMMED},
                }
                for line in lines
            ),
            key=lambda line: (line["project_id"], line["model_id"]),
        ),
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
    connection: Connection, owner: str, month: str, project_id: str | None, due: int, bounds: Bounds
) -> list[_Row]:
    """Those that were charged in the month, those that were settled in it and charged when the ledger was there again,
    and the other events of their requests."""
    since, until = month_bounds(month)
    own = _e.workspace_id == owner
    if project_id is not None:
        own = and_(own, _e.project_id == project_id)
    settled_in = and_(_e.settled_at >= since, _e.settled_at < until)
    charged_in = or_(_e.month == month, and_(_e.month.is_(None), settled_in))
    near = _e.settled_at.between(since - SPOOLED, until + AHEAD)
    found = _read(connection, select(usage_events).where(own, charged_in, near))
    if len(found) < due:
        found = _read(connection, select(usage_events).where(own, charged_in))
    # They are promised by when they were settled, so that their replies' receipts are of this month.
    elsewhere = select(usage_events).where(own, settled_in, _e.month != month)
    most = None if bounds.leaves is None else max(bounds.leaves - len(found), 0)
    found += _read(connection, elsewhere if most is None else elsewhere.limit(most + 1))
    _require_few(month, len(found), bounds)
    known = {one.id for one in found}
    others = sorted({one.paired_with for one in found if one.paired_with and one.paired_with not in known})
    for some in _parts(others):
        of_owner = and_(_e.workspace_id == owner, _e.event_id.in_(some))
        pairs = _read(connection, select(usage_events).where(of_owner))
        gone = set(some) - {one.id for one in pairs}
        if gone and min(gone) < archived_until(connection):
            raise NoProof(f"of some requests of {month} an event is archived: {WHILE_THERE}")
        found += pairs
    return found


def _adjustments(connection: Connection, owner: str, month: str, project_id: str | None) -> list[_Row]:
    return _read(connection, select(adjustments).where(*_of_month(owner, month, project_id)))


def _of_month(owner: str, month: str, project_id: str | None) -> list[ColumnElement[bool]]:
    """Of adjustments."""
    of_project = [] if project_id is None else [_a.project_id == project_id]
    return [_a.workspace_id == owner, _a.month == month, *of_project]


def _read(connection: Connection, statement: Select[Any]) -> list[_Row]:
    rows = connection.execution_options(yield_per=ROWS_AT_ONCE).execute(statement).mappings()
    found: list[_Row] = []
    for number, row in enumerate(rows):
        if number % ROWS_IN_A_TURN == 0:
            let_others_run(connection)
        found.append(_row(dict(row)))
    return found


def _row(row: dict[str, Any]) -> _Row:
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
