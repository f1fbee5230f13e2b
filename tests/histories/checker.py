"""What a history must be: serial for each workspace, in real time, with money that adds up in every transaction.

The order of a row's versions is known from the journal, so no order is guessed (as Elle infers one from values that
it can recover): lost updates, dirty and stale reads, torn snapshots of two rows, limits that were passed, and holds,
events and adjustments that are there twice or not at all are each a line of what `anomalies` returns.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from tests.histories.journal import KEY, WORKSPACE, Change

# The database's clock and the clients' are one machine's, read one after the other.
CLOCKS_S = 0.002
POSTED, CREDITED, HELD, MONTH, LIMIT, MONTHLY = range(len(WORKSPACE))
K_POSTED, K_HELD, K_MONTH, K_LIMIT, K_MONTHLY = range(len(KEY))


@dataclass(slots=True)
class Operation:
    """What a client asked and was answered, with its times in seconds since 1970."""

    kind: str
    workspace: str
    key: str
    began: float
    ended: float
    # Id of the hold, event or adjustment.
    id: str = ""
    amount: int = 0
    outcome: str = "done"
    # Figures that were read, or that a refusal named.
    seen: tuple[Any, ...] = ()


@dataclass(slots=True)
class State:
    """A workspace and its keys after a change. `is_last` of its transaction: others may read it; units of work in the
    same transaction see those before, too. `committed_by` is when a client knew of it (infinite: none did)."""

    at: float
    figures: tuple[int | None, ...]
    keys: dict[str, tuple[int | None, ...]]
    is_last: bool
    committed_by: float = float("inf")


@dataclass
class Workspace:
    """Its states, in their order, and the transactions that made them."""

    states: list[State] = field(default_factory=list)
    txs: list[int] = field(default_factory=list)

    def seen_within(self, began: float, ended: float) -> Iterator[State]:
        """States that somebody may have read who asked and was answered then, the newest first."""
        last = bisect_right(self.states, ended + CLOCKS_S, key=lambda state: state.at) - 1
        for index in range(last, -1, -1):
            yield self.states[index]
            # Whoever asks after a commit was answered does not see what was before it.
            if self.states[index].committed_by + CLOCKS_S < began:
                return


def anomalies(
    changes: Sequence[Change], operations: Sequence[Operation], root_of: dict[str, str], home: dict[str, str]
) -> list[str]:
    """`root_of`: the key whose row counts the money of each key; `home`: the workspace of each such key."""
    changes = [_owned(change, home) for change in changes]
    found = [*_unchained(changes), *_unbalanced(changes, root_of), *_beyond_limits(changes)]
    workspaces, torn = _states(changes, operations)
    return [*found, *torn, *_not_once(changes, operations), *_impossible(workspaces, operations, root_of)]


def _owned(change: Change, home: dict[str, str]) -> Change:
    return replace(change, workspace=home.get(change.id)) if change.kind == "key" else change


def _unchained(changes: Sequence[Change]) -> Iterator[str]:
    """Versions that do not follow on the one before: an update was lost, or what was rolled back was read."""
    last: dict[tuple[str, str], tuple[int | None, ...]] = {}
    for change in changes:
        if change.kind not in ("workspace", "key"):
            continue
        name = (change.kind, change.id)
        if change.before and name in last and last[name] != change.before:
            yield f"{change.kind} {change.id}: version {change.seq} is of {change.before}, not of {last[name]}"
        last[name] = change.after


def _moved(change: Change, column: int) -> int:
    before = change.before[column] if change.before else 0
    return (change.after[column] or 0) - (before or 0)


def _unbalanced(changes: Sequence[Change], root_of: dict[str, str]) -> Iterator[str]:
    """Transactions whose holds, events and adjustments are not what moved on their workspaces and keys."""
    moved: Counter[tuple[int, str, str]] = Counter()
    due: Counter[tuple[int, str, str]] = Counter()
    limited = {change.id for change in changes if change.kind == "key"}
    for change in changes:
        tx, owner = change.tx, change.workspace or "?"
        if change.kind == "workspace":
            for name, column in (("posted", POSTED), ("credited", CREDITED), ("held", HELD)):
                moved[tx, owner, name] += _moved(change, column)
        elif change.kind == "key":
            moved[tx, change.id, "key posted"] += _moved(change, K_POSTED)
            moved[tx, change.id, "key held"] += _moved(change, K_HELD)
        elif change.kind == "adjustment":
            amount = change.after[0] or 0
            due[tx, owner, "posted" if amount > 0 else "credited"] += abs(amount)
        else:
            column, figure = _due(change)
            due[tx, owner, column] += figure
            root = root_of.get(change.key or "", change.key or "")
            if root in limited:
                due[tx, root, f"key {column}"] += figure
    for tx, owner, name in moved.keys() | due.keys():
        if moved[tx, owner, name] != due[tx, owner, name]:
            yield (
                f"transaction {tx} of {owner}: {name} moved by {moved[tx, owner, name]}, "
                f"due {due[tx, owner, name]}"
            )


def _due(change: Change) -> tuple[str, int]:
    """What an event or a hold is due to move, and by how much."""
    if change.kind == "event":
        cost, written_off = change.after
        return "posted", (cost or 0) - (written_off or 0)
    (amount,) = change.after or change.before
    return "held", (amount or 0) * (1 if change.kind == "opened" else -1)


def _beyond_limits(changes: Sequence[Change]) -> Iterator[str]:
    """Versions that commit more than before, and more than a limit allows."""
    for change in changes:
        if change.kind not in ("workspace", "key") or not change.before:
            continue
        for which, before, after, limit in _commitments(change):
            if limit is not None and after > max(before, limit):
                yield f"{change.kind} {change.id}: {after} is committed of a {which} limit of {limit}"


def _commitments(change: Change) -> Iterator[tuple[str, int, int, int | None]]:
    total, month = _committed(change.kind)
    limits = (LIMIT, MONTHLY) if change.kind == "workspace" else (K_LIMIT, K_MONTHLY)
    for which, of, limit in (("total", total, limits[0]), ("monthly", month, limits[1])):
        yield which, of(change.before), of(change.after), change.after[limit]


def _committed(kind: str) -> tuple[Any, Any]:
    if kind == "workspace":
        return (lambda f: f[POSTED] - f[CREDITED] + f[HELD]), (lambda f: f[MONTH] + f[HELD])
    return (lambda f: f[K_POSTED] + f[K_HELD]), (lambda f: f[K_MONTH] + f[K_HELD])


def _states(
    changes: Sequence[Change], operations: Sequence[Operation]
) -> tuple[dict[str, Workspace], list[str]]:
    """The states of each workspace, and the transactions that were not one after the other."""
    known = {operation.id: operation.ended for operation in operations if operation.outcome == "done"}
    bounds: dict[int, float] = {}
    for change in changes:
        if change.kind in ("opened", "adjustment", "event") and change.id in known:
            bounds[change.tx] = min(bounds.get(change.tx, float("inf")), known[change.id])
    by_workspace: defaultdict[str, list[Change]] = defaultdict(list)
    for change in changes:
        if change.kind in ("workspace", "key") and change.workspace is not None:
            by_workspace[change.workspace].append(change)
    found: dict[str, Workspace] = {}
    torn: list[str] = []
    for owner, own in by_workspace.items():
        workspace = found[owner] = Workspace()
        figures: tuple[int | None, ...] = ()
        keys: dict[str, tuple[int | None, ...]] = {}
        for index, change in enumerate(own):
            if change.kind == "workspace":
                figures = change.after
            else:
                keys = {**keys, change.id: change.after}
            is_last = index + 1 == len(own) or own[index + 1].tx != change.tx
            if figures:
                bound = bounds.get(change.tx, float("inf")) if is_last else float("inf")
                workspace.states.append(State(change.at, figures, keys, is_last, bound))
            if is_last:
                workspace.txs.append(change.tx)
        torn += [
            f"transaction {tx} of {owner} ran between others"
            for tx, count in Counter(workspace.txs).items()
            if count > 1
        ]
        # What is before a state that a client knew of is before that moment too.
        for earlier, later in reversed(list(pairwise(workspace.states))):
            earlier.committed_by = min(earlier.committed_by, later.committed_by)
    return found, torn


def _not_once(changes: Sequence[Change], operations: Sequence[Operation]) -> Iterator[str]:
    """What was answered and is not there, or is there more than once."""
    there: Counter[tuple[str, str]] = Counter((change.kind, change.id) for change in changes)
    amounts = {(c.kind, c.id): c.after[0] for c in changes if c.kind in ("opened", "event", "adjustment")}
    for (kind, name), times in there.items():
        if kind in ("opened", "closed", "event", "adjustment") and times > 1:
            yield f"{kind} {name} is there {times} times"
        if kind == "closed" and not there["opened", name]:
            yield f"hold {name} was closed, and never opened"
    asked: defaultdict[str, list[Operation]] = defaultdict(list)
    for operation in operations:
        if operation.kind in ("hold", "settle", "release", "adjust"):
            asked[operation.kind].append(operation)
    kinds = {"hold": "opened", "settle": "event", "adjust": "adjustment"}
    for what, kind in kinds.items():
        done = {operation.id: operation for operation in asked[what] if operation.outcome == "done"}
        for name, operation in done.items():
            if amounts.get((kind, name)) != operation.amount:
                yield f"{what} {name} of {operation.amount} was answered; there is {amounts.get((kind, name))}"
        for extra in {name for of_kind, name in there if of_kind == kind} - done.keys():
            yield f"{kind} {extra} is there, and nobody was told so"
    closers = Counter(operation.id for operation in asked["release"] if operation.outcome == "done")
    yield from (f"hold {name} was given back {times} times" for name, times in closers.items() if times > 1)
    left = {name for kind, name in there if kind == "opened"} - {n for kind, n in there if kind == "closed"}
    yield from (f"hold {name} was never closed" for name in left)


def _impossible(
    workspaces: dict[str, Workspace], operations: Sequence[Operation], root_of: dict[str, str]
) -> Iterator[str]:
    """Reads and refusals that no state explains which was there meanwhile."""
    for operation in operations:
        if operation.outcome not in ("read", "refused"):
            continue
        workspace, root = workspaces[operation.workspace], root_of[operation.key]
        explains = _reads if operation.outcome == "read" else _refuses
        seen = workspace.seen_within(operation.began, operation.ended)
        # Before its key was made nobody could ask with it.
        states = [state for state in seen if root in state.keys]
        if not any(explains(state, operation, root) for state in states):
            yield (
                f"{operation.kind} of {operation.workspace} by {operation.key} at {operation.began:.6f} saw "
                f"{operation.seen}, which none of {len(states)} states shows"
            )


def _reads(state: State, operation: Operation, root: str) -> bool:
    """`seen`: used, held and limit of the workspace, and of the key."""
    figures, key = state.figures, state.keys[root]
    own = ((figures[POSTED] or 0) - (figures[CREDITED] or 0), figures[HELD], figures[LIMIT])
    return state.is_last and operation.seen == (*own, key[K_POSTED], key[K_HELD], key[K_LIMIT])


def _refuses(state: State, operation: Operation, root: str) -> bool:
    """`seen`: whose limit it was."""
    of_key = operation.seen == ("key",)
    figures, limit = (state.keys[root], K_LIMIT) if of_key else (state.figures, LIMIT)
    total, month = _committed("key" if of_key else "workspace")
    limits = ((total, figures[limit]), (month, figures[limit + 1]))
    return any(most is not None and of(figures) + operation.amount > most for of, most in limits)
