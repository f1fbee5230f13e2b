"""Proves events stretch by stretch: that each costs what its tokens cost, and that none is another than it was.

An ordinary proof reads the days that ended since the last one, those in which an event arrived late, what is not over
yet, and the day that was read the longest time ago. A full one reads everything.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from sqlalchemy import Connection, select

from billing.books.invariants import CHARGES, MOST_NAMED, Violation
from billing.books.mispriced import MispricedEvent, mispriced_events
from billing.rollups import checkpoint_sql
from billing.rollups.archived import dropped_until
from billing.rollups.checkpoint_sql import Stretch, Sum, within
from billing.rollups.event_sums import Sums, joined, sums_of, text_of_events
from billing.store.database import Database
from billing.store.schema import usage_events

_e = usage_events.c
EVENTS_AT_ONCE = 20_000
# Until other transactions have ended, which take seconds at the most.
WAITS, WAIT_S = 100, 0.1


@dataclass(frozen=True, slots=True)
class ChangedEvents:
    """A stretch whose events are not those that were proven: some were changed, added without a trace, or deleted."""

    from_id: str
    until_id: str | None
    events_then: int
    events_now: int


@dataclass(slots=True)
class Proof:
    """What was read and what was found."""

    events: int = 0
    mispriced: list[MispricedEvent] = field(default_factory=list)
    changed: list[ChangedEvents] = field(default_factory=list)
    # What was kept of a stretch and is not what its events add up to, though they are those that were proven.
    wrong_sums: list[Violation] = field(default_factory=list)
    # Where the stretches begin of which something else was kept than their events add up to.
    distrusted: set[str] = field(default_factory=set)
    # The stretches, by where they begin.
    read: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Read:
    """One stretch, as its events are now."""

    digest: str = ""
    events: int = 0
    mispriced: list[MispricedEvent] = field(default_factory=list)
    sums: Sums = field(default_factory=dict)


async def prove(database: Database, *, full: bool) -> Proof:
    """Raises `LedgerUnavailable`."""
    proof = Proof()
    while added := await database.read(checkpoint_sql.extend):
        if await database.write(partial(checkpoint_sql.begin, stretches=added)):
            await _prove_all(database, added, proof)
    await _prove_all(database, await _to_read(database, full=full), proof)
    begin = await database.read(checkpoint_sql.open_from)
    _count(proof, await _read(database, Stretch(begin, None), with_digest=False))
    if late := await database.read(dropped_until):
        # What came late to months that are archived.
        _count(proof, await _read(database, Stretch("", late), with_digest=False))
    return proof


async def _to_read(database: Database, *, full: bool) -> list[Stretch]:
    if full:
        return await database.read(checkpoint_sql.stretches)
    oldest = await database.read(checkpoint_sql.least_recent)
    wrong = [
        *await database.read(checkpoint_sql.unproven),
        *await database.read(checkpoint_sql.known_changed),
    ]
    return [*wrong, *([oldest] if oldest else [])]


async def _are_noted(database: Database) -> bool:
    """Whether the database notes every event that was not committed yet in the stretches that it has."""
    transaction = await database.write(checkpoint_sql.mark)
    if transaction is None:
        return True
    for _ in range(WAITS):
        if await database.read(partial(checkpoint_sql.is_over, transaction=transaction)):
            return True
        await asyncio.sleep(WAIT_S)
    return False


async def _prove_all(database: Database, stretches: Sequence[Stretch], proof: Proof) -> None:
    is_new = any(stretch.digest is None for stretch in stretches)
    may_keep = is_new and await _are_noted(database)
    for stretch in stretches:
        if stretch.from_id in proof.read:
            continue
        proof.read.add(stretch.from_id)
        read = await _read(database, stretch, with_digest=True)
        _count(proof, read)
        if stretch.digest is not None:
            await _compare(database, stretch, read, proof)
        elif may_keep and not read.mispriced:
            # One with a wrong price is read, and named, every time.
            sums = list(read.sums.values())
            keep = partial(
                checkpoint_sql.keep, stretch=stretch, digest=read.digest, events=read.events, sums=sums
            )
            await database.write(keep)


async def _compare(database: Database, stretch: Stretch, read: _Read, proof: Proof) -> None:
    """What was kept of a stretch with what was read of it."""
    kept = await database.read(partial(checkpoint_sql.kept_sums, stretch=stretch))
    if kept is None:
        return
    wrong = _differing(joined(kept), read.sums)
    if wrong:
        proof.distrusted.add(stretch.from_id)
    is_changed = (read.digest, read.events) != (stretch.digest, stretch.events)
    if is_changed:
        proof.changed.append(ChangedEvents(stretch.from_id, stretch.until_id, stretch.events, read.events))
    else:
        proof.wrong_sums += wrong[: MOST_NAMED - len(proof.wrong_sums)]
    # What was read the longest time ago is read next: also where this one has a finding.
    is_known = is_changed or bool(wrong)
    await database.write(partial(checkpoint_sql.note_read, stretch=stretch, is_changed=is_known))


def _differing(stored: Sums, due: Sums) -> list[Violation]:
    found = []
    for workspace_id, month in sorted(stored.keys() | due.keys()):
        one, other = (_amounts(side.get((workspace_id, month))) for side in (stored, due))
        if one != other:
            found.append(Violation(workspace_id, "checkpoint_sums", (month, ""), one, other))
    return found


def _amounts(one: Sum | None) -> dict[str, int]:
    amounts = (one.events, one.charged_nano_usd, one.written_off_nano_usd) if one else (0, 0, 0)
    return dict(zip(CHARGES, amounts, strict=True))


async def _read(database: Database, stretch: Stretch, *, with_digest: bool) -> _Read:
    found, digest = _Read(), hashlib.sha256()
    begin: str | None = stretch.from_id
    while begin is not None:
        piece = partial(_piece, begin=begin, until=stretch.until_id, with_digest=with_digest)
        begin, text, mispriced, of_piece = await database.read(piece)
        if text:
            digest.update(text.encode())
            digest.update(b"\n")
        found.mispriced += mispriced[: MOST_NAMED - len(found.mispriced)]
        found.sums = joined([*found.sums.values(), *of_piece])
    found.digest = digest.hexdigest()
    found.events = sum(one.events for one in found.sums.values())
    return found


def _piece(
    connection: Connection, *, begin: str, until: str | None, with_digest: bool
) -> tuple[str | None, str, list[MispricedEvent], list[Sum]]:
    """Where the next piece begins, if there is one, and what is in this one."""
    after = select(_e.event_id).where(within(begin, until)).order_by(_e.event_id)
    following = connection.execute(after.offset(EVENTS_AT_ONCE).limit(1)).scalar()
    end = following or until
    text = text_of_events(connection, begin, end) if with_digest else ""
    mispriced = mispriced_events(connection, from_id=begin, until_id=end)
    return following, text, mispriced, sums_of(connection, within(begin, end))


def _count(proof: Proof, read: _Read) -> None:
    proof.events += read.events
    proof.mispriced += read.mispriced[: MOST_NAMED - len(proof.mispriced)]
