"""What becomes of a collection is announced with it: in the same transaction, by whatever way it came."""

from __future__ import annotations

from functools import partial

import pytest

from billing.collections import collection_sql
from billing.collections.collection import HookAnswer, HookCommand, State
from billing.collections.collector import Collector
from billing.errors import IllegalMove
from tests.billing.conftest import NOW
from tests.billing.webhooks.conftest import Hooks

CENTS = 10_000_000


@pytest.fixture
def collector(hooks: Hooks) -> Collector:
    async def run(command: HookCommand, request: bytes) -> HookAnswer:
        return HookAnswer("failed", "pi_1", "declined")

    return Collector(hooks.books.database, actor="test", run=run)


async def cut(hooks: Hooks, collector: Collector) -> str:
    caller = await hooks.books.new_caller()
    await hooks.books.settle(await hooks.books.hold(caller, 700 * CENTS), 700 * CENTS)
    (made,) = await collector.cut_due(threshold_cents=500, now=NOW)
    return made.id


async def told(hooks: Hooks) -> list[str]:
    await hooks.send()
    return [one.payload["type"] for one in hooks.receiver.got]


async def test_each_change_is_told_in_its_own_words(hooks: Hooks, collector: Collector) -> None:
    await hooks.webhooks.add(f"{hooks.receiver.url}/hook")
    collection_id = await cut(hooks, collector)
    assert await told(hooks) == ["collection.opened"]
    # By the payment hook, and then by hand.
    assert await collector.hand_over(HookCommand(["true"], 5), clock=lambda: NOW) == 1
    moves: list[State] = ["open", "void"]
    for state in moves:
        await collector.mark(collection_id, state, note="the operator's own words", now=NOW)
    found = await told(hooks)
    assert sorted(found) == sorted(
        ["collection.opened", "collection.failed", "collection.opened", "collection.void"]
    )
    (failed,) = [one.payload for one in hooks.receiver.got if one.payload["type"] == "collection.failed"]
    assert failed["data"]["reference"] == "pi_1" and failed["data"]["cents"] == 700
    assert failed["data"]["collection_id"] == collection_id and failed["data"]["times_opened"] == 1
    assert not [one for one in hooks.receiver.got if b"own words" in one.body]


async def test_a_change_that_is_refused_or_rolled_back_is_not_told(
    hooks: Hooks, collector: Collector
) -> None:
    collection_id = await cut(hooks, collector)
    await hooks.webhooks.add(f"{hooks.receiver.url}/hook")
    move = partial(collection_sql.move, collection_id=collection_id, wanted="paid", actor="test", now=NOW)

    def fails_after(connection: object) -> None:
        move(connection)
        raise RuntimeError("the process dies before the commit")

    with pytest.raises(RuntimeError):
        await hooks.books.database.write(fails_after)
    assert await told(hooks) == []
    await collector.mark(collection_id, "paid", now=NOW)
    with pytest.raises(IllegalMove):
        await collector.mark(collection_id, "open", now=NOW)
    assert await told(hooks) == ["collection.paid"]
