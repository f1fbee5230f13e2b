"""Sums of checks of compressed chats, by whom they were and of what: means, with intervals that hold at every look.

A report may be asked for after each chat, and acted on: an interval for one number of chats that was fixed before would
miss the mean far more often than it says.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import Connection, select

from billing.accounts import account_sql
from billing.books.saving import CONFIDENCE, PreservedBy
from billing.preservation.checks import HIGHEST_NATS, LOWEST_NATS, MOST_READ
from billing.preservation.confidence_sequence import ConfidenceSequence, Interval
from billing.store.dates import within
from billing.store.schema import preservation_checks, projects, workspaces

_c = preservation_checks.c
_COLUMNS = {
    "workspace": {"workspace": workspaces.c.name, "workspace_id": _c.workspace_id},
    "project": {"project": projects.c.name, "project_id": _c.project_id},
    "model": {"model": _c.model_id},
    "kind": {"kind": _c.kinds},
}


@dataclass(frozen=True, slots=True)
class Preservation:
    """Checked chats of one group. `nats` is the mean of their nats a token, of which `clipped_chats` lay outside
    `LOWEST_NATS` to `HIGHEST_NATS` and count as the nearer end; `agreement` that of their shares of places with the
    same likeliest token. Each chat counts alike, however long its reply."""

    group: Mapping[str, str]
    checked_chats: int
    scored_tokens: int
    original_tokens: int
    sent_tokens: int
    clipped_chats: int
    nats: Interval
    agreement: Interval


@dataclass(slots=True)
class _Sum:
    tokens: int = 0
    original: int = 0
    sent: int = 0
    clipped: int = 0
    nats: ConfidenceSequence = field(
        default_factory=lambda: ConfidenceSequence(LOWEST_NATS, HIGHEST_NATS, CONFIDENCE)
    )
    agreement: ConfidenceSequence = field(default_factory=lambda: ConfidenceSequence(0.0, 1.0, CONFIDENCE))

    def add(self, tokens: int, agreeing: int, nats: float, original: int, sent: int) -> None:
        self.tokens += tokens
        self.original += original
        self.sent += sent
        self.clipped += not LOWEST_NATS <= nats <= HIGHEST_NATS
        self.nats.add(nats)
        self.agreement.add(agreeing / tokens)

    def of(self, group: Mapping[str, str]) -> Preservation:
        return Preservation(
            group,
            self.nats.count,
            self.tokens,
            self.original,
            self.sent,
            self.clipped,
            self.nats.interval,
            self.agreement.interval,
        )


def preservation(
    connection: Connection,
    by: Sequence[PreservedBy],
    *,
    workspace: str | None = None,
    project_id: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int = MOST_READ,
) -> list[Preservation]:
    """Of the newest `limit` checked chats settled from `since` to before `until`: one for each group, in the groups'
    order. Raises `UnknownAccount`."""
    names = {name: column for each in by for name, column in _COLUMNS[each].items()}
    rows = (
        select(
            *(column.label(name) for name, column in names.items()),
            *(_c.scored_tokens, _c.agreeing_tokens, _c.nats_per_token, _c.original_tokens, _c.sent_tokens),
        )
        .join(projects, projects.c.id == _c.project_id)
        .join(workspaces, workspaces.c.id == _c.workspace_id)
        .order_by(_c.settled_at.desc(), _c.event_id.desc())
        .limit(limit)
    )
    if workspace is not None:
        rows = rows.where(_c.workspace_id == account_sql.find_workspace(connection, workspace).id)
    if project_id is not None:
        rows = rows.where(_c.project_id == project_id)
    found: dict[tuple[str, ...], _Sum] = {}
    # As they came.
    for row in reversed(connection.execute(within(rows, _c.settled_at, since, until)).all()):
        found.setdefault(tuple(row[: len(names)]), _Sum()).add(*row[len(names) :])
    return [sums.of(dict(zip(names, key, strict=True))) for key, sums in sorted(found.items())]
