"""A short run on a real PostgreSQL is serial, and the checker sees each kind of anomaly that is put into a history."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from sqlalchemy import Connection, insert, select, update

from billing.ledger import balances, ledger_sql
from billing.store.migration import upgrade
from billing.store.schema import holds, workspaces
from billing.usage import Hold
from tests.histories import journal
from tests.histories.checker import HELD, LIMIT, Operation, anomalies
from tests.histories.clients import Histories, opened
from tests.histories.journal import Change
from tests.histories.run import rounds
from tests.migrated import execute_on_postgres

CLIENTS, OPERATIONS = 16, 500
on_postgres = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)


@on_postgres
async def test_a_history_of_sixteen_clients_is_serial(database_url: str, tmp_path: Path) -> None:
    asked = rounds(
        database_url, tmp_path, clients=CLIENTS, operations=OPERATIONS, of_round=OPERATIONS, seed=28
    )
    (found,) = [one async for one in asked]
    assert found.anomalies == []
    kinds = {"hold: done", "hold: refused", "settle: done", "release: done", "read: read", "adjust: done"}
    assert kinds <= found.operations.keys() and found.versions > OPERATIONS


async def recorded(url: str, folder: Path) -> tuple[list[Change], Histories]:
    await upgrade(url)
    async with AsyncExitStack() as stack:
        world = await opened(url, folder, stack)
        database = world.servers[0].database
        await database.write(journal.begin)
        await world.run(CLIENTS, OPERATIONS, "to be tampered with")
        return await database.write(journal.taken), world


Tamper = Callable[[list[Change], list[Operation]], None]


def at(changes: list[Change], kind: str, *, grows: bool = False) -> int:
    """Index of a change of this kind from the middle of the history; one that holds more, where it `grows`."""
    return next(
        index
        for index, one in enumerate(changes)
        if index > len(changes) // 3
        and one.kind == kind
        and (not grows or (one.before and (one.after[HELD] or 0) > (one.before[HELD] or 0)))
    )


def lose_an_update(changes: list[Change], operations: list[Operation]) -> None:
    first = at(changes, "workspace", grows=True)
    following = next(
        index
        for index in range(first + 1, len(changes))
        if (changes[index].kind, changes[index].id) == ("workspace", changes[first].id)
    )
    changes[following] = replace(changes[following], before=changes[first].before)


def double_an_event(changes: list[Change], operations: list[Operation]) -> None:
    changes.append(changes[at(changes, "event")])


def lose_an_event(changes: list[Change], operations: list[Operation]) -> None:
    del changes[at(changes, "event")]


def leave_a_hold(changes: list[Change], operations: list[Operation]) -> None:
    del changes[at(changes, "closed")]


def charge_too_much(changes: list[Change], operations: list[Operation]) -> None:
    where = at(changes, "event")
    due, written_off = changes[where].after
    changes[where] = replace(changes[where], after=((due or 0) + 1, written_off))


def pass_a_limit(changes: list[Change], operations: list[Operation]) -> None:
    where = at(changes, "workspace", grows=True)
    after = list(changes[where].after)
    after[LIMIT] = 0
    changes[where] = replace(changes[where], after=tuple(after))


def run_between_others(changes: list[Change], operations: list[Operation]) -> None:
    own = [
        i
        for i, one in enumerate(changes)
        if one.kind == "workspace" and one.id == changes[at(changes, "workspace")].id
    ]
    first, other = next(
        (i, j) for (i, middle), j in zip(pairwise(own), own[2:], strict=False)
        if len({changes[k].tx for k in (i, middle, j)}) == 3
    )  # fmt: skip
    changes[other] = replace(changes[other], tx=changes[first].tx)


def _two_reads(operations: list[Operation]) -> tuple[Operation, int]:
    """An early read, and the index of a later one by the same key that saw other figures of workspace and key."""
    reads = [(index, one) for index, one in enumerate(operations) if one.outcome == "read"]
    for _, early in reads:
        for index, late in reversed(reads):
            is_other = early.seen[:3] != late.seen[:3] and early.seen[3:] != late.seen[3:]
            if late.key == early.key and is_other and late.began > early.ended + 0.1:
                return early, index
    raise AssertionError("no two reads differ")


def read_what_was_before(changes: list[Change], operations: list[Operation]) -> None:
    early, late = _two_reads(operations)
    operations[late] = replace(operations[late], seen=early.seen)


def read_rows_of_two_moments(changes: list[Change], operations: list[Operation]) -> None:
    early, late = _two_reads(operations)
    operations[late] = replace(operations[late], seen=operations[late].seen[:3] + early.seen[3:])


def refuse_what_has_room(changes: list[Change], operations: list[Operation]) -> None:
    where = next(i for i, one in enumerate(operations) if one.outcome == "refused")
    operations[where] = replace(operations[where], amount=-(10**12))


def give_back_twice(changes: list[Change], operations: list[Operation]) -> None:
    operations.append(next(one for one in operations if (one.kind, one.outcome) == ("release", "done")))


TAMPERED: list[tuple[Tamper, str]] = [
    (lose_an_update, "not of"),
    (double_an_event, "is there 2 times"),
    (lose_an_event, "was answered; there is None"),
    (leave_a_hold, "was never closed"),
    (charge_too_much, "posted moved by"),
    (pass_a_limit, "limit of 0"),
    (run_between_others, "ran between others"),
    (read_what_was_before, "states shows"),
    (read_rows_of_two_moments, "states shows"),
    (refuse_what_has_room, "states shows"),
    (give_back_twice, "was given back 2 times"),
]


@on_postgres
async def test_each_anomaly_that_is_put_into_a_history_is_seen(database_url: str, tmp_path: Path) -> None:
    changes, world = await recorded(database_url, tmp_path)
    assert anomalies(changes, world.operations, world.root_of, world.home) == []
    for tamper, said in TAMPERED:
        others, operations = list(changes), list(world.operations)
        tamper(others, operations)
        found = anomalies(others, operations, world.root_of, world.home)
        assert any(said in line for line in found), (tamper.__name__, found[:5])


def open_hold_without_a_lock(connection: Connection, hold: Hold, *, owner: str, lease_s: float) -> None:
    """Reads, then writes: whoever held in between is forgotten."""
    own = workspaces.c.id == hold.workspace_id
    row = connection.execute(select(workspaces).where(own)).one()
    connection.exec_driver_sql("SELECT pg_sleep(0.002)")
    held = row.held_nano_usd + hold.amount_nano_usd
    connection.execute(update(workspaces).where(own).values(held_nano_usd=held))
    balances.reserve(connection, hold.key_id, hold.amount_nano_usd, row.month)
    values = {
        name: getattr(hold, name)
        for name in ("event_id", "workspace_id", "amount_nano_usd", "created_at", "key_id")
    }
    connection.execute(insert(holds).values(**values, owner=owner, expires_at=2e9))


@on_postgres
async def test_a_ledger_that_reads_before_it_writes_is_caught(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_sql, "open_hold", open_hold_without_a_lock)
    await upgrade(database_url)
    # The database's own check would stop the run sooner.
    await execute_on_postgres(database_url, "ALTER TABLE workspaces DROP CONSTRAINT ck_workspaces_held")
    changes, world = await recorded(database_url, tmp_path)
    found = anomalies(changes, world.operations, world.root_of, world.home)
    assert any(" held moved by" in line and "key held" not in line for line in found)
