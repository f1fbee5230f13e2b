"""The sequencer: every event and every adjustment becomes one leaf, whatever dies and whoever else is at work."""

from __future__ import annotations

import asyncio
import hashlib
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import delete, insert, select, text, update

from billing.adjustments.adjustments import Adjustments
from billing.errors import LedgerUnavailable
from billing.store.database import FakeOutageDatabase
from billing.store.log_tables import log_bundles, log_pending
from billing.store.schema import usage_events
from billing.transparency import log_sql
from billing.transparency import sequencer as module
from billing.transparency.log_sql import Edge, LogDamaged
from billing.transparency.notes import signer
from billing.transparency.places import indices
from billing.transparency.sequencer import OtherSigner, grown
from billing.transparency.tree import EMPTY_ROOT, TILE_WIDTH, Tree
from tests.billing.transparency.logged import (
    AT,
    SIGNER,
    add_events,
    index_of,
    leaves_of,
    pending,
    require_exact,
    sequencer,
    signed,
)
from tests.billing.transparency.test_tree import by_definition

if TYPE_CHECKING:
    from tests.billing.conftest import Books


async def test_events_and_adjustments_become_leaves_and_wait_no_more(books: Books) -> None:
    caller = await books.new_caller()
    event = (await books.settle(await books.hold(caller))).event_id
    given = await Adjustments(books.database, actor="test").credit(
        caller.workspace_id, nano_usd=7, reason="sorry", idempotency_key="k"
    )
    assert await pending(books.database) == 2
    await sequencer(books.database).once()
    assert await pending(books.database) == 0
    assert await require_exact(books.database) == 2
    assert {await index_of(books.database, event), await index_of(books.database, given.id)} == {0, 1}


async def test_what_comes_later_goes_to_the_end_also_if_it_began_earlier(books: Books) -> None:
    caller = await books.new_caller()
    await add_events(books, caller, 3)
    await sequencer(books.database).once()
    before = await books.database.read(leaves_of)
    await add_events(books, caller, 2, at=AT - timedelta(hours=9))
    await sequencer(books.database).once()
    after = await books.database.read(leaves_of)
    assert (len(after), after[:3]) == (5, before)
    assert await require_exact(books.database) == 5


async def test_a_leaf_is_found_in_whichever_bundle_of_its_minute_it_is(books: Books) -> None:
    caller = await books.new_caller()
    await add_events(books, caller, 600)
    await sequencer(books.database).once()
    ids = await books.database.read(lambda c: c.scalars(select(usage_events.c.event_id)).all())
    found = [await index_of(books.database, id_) for id_ in sorted(ids)[::50]]
    assert found == list(range(0, 600, 50))
    # The end of an entry and the beginning of the next are none.
    held = await books.database.read(lambda c: log_sql.bundle(c, 0, TILE_WIDTH))
    for stranger in (hashlib.sha256(b"no leaf").digest(), held[5:37]):
        for id_ in (ids[0], "x" * 12):
            looked_up = partial(indices, entries={id_: stranger})
            assert await books.database.read(looked_up) == {}


async def test_an_event_that_the_ledger_knew_is_no_second_leaf(books: Books) -> None:
    caller = await books.new_caller()
    hold = await books.hold(caller)
    await books.settle(hold)
    await sequencer(books.database).once()
    await books.settle(hold)
    assert await pending(books.database) == 0
    assert await require_exact(books.database) == 1


async def test_an_empty_log_is_signed_too(books: Books) -> None:
    await sequencer(books.database).once()
    found = await books.database.read(signed)
    assert (found.size, found.root) == (0, EMPTY_ROOT)


async def test_without_anything_new_the_checkpoint_stays_as_it_is(books: Books) -> None:
    await add_events(books, await books.new_caller(), 1)
    await sequencer(books.database).once()
    cosigned = (await books.database.read(log_sql.head)).note + "— witness c29tZXRoaW5n\n"
    noting = text("UPDATE log_head SET note = :note")
    await books.database.write(lambda c: c.execute(noting, {"note": cosigned}) and None)
    await sequencer(books.database).once()
    assert (await books.database.read(log_sql.head)).note == cosigned


async def test_another_origin_signs_the_same_tree_anew(books: Books) -> None:
    await add_events(books, await books.new_caller(), 1)
    await sequencer(books.database).once()
    other = signer(b"another secret", "elsewhere.example/log")
    await sequencer(books.database, by=other).once()
    found = await books.database.read(lambda c: signed(c, other))
    assert (found.origin, found.size) == ("elsewhere.example/log", 1)


@pytest.mark.parametrize("numbers", [(255, 1, 1), (256, 256), (1, 1030)])
async def test_bundles_fill_across_rounds(books: Books, numbers: tuple[int, ...]) -> None:
    caller = await books.new_caller()
    for number in numbers:
        await add_events(books, caller, number)
        await sequencer(books.database).once()
    assert await require_exact(books.database) == sum(numbers)


async def test_two_servers_at_once_lose_and_double_nothing(books: Books) -> None:
    caller = await books.new_caller()
    servers = [sequencer(books.database) for _ in range(4)]
    for _ in range(5):
        await add_events(books, caller, 300)
        await asyncio.gather(*(server.once() for server in servers))
    await servers[0].once()
    assert await require_exact(books.database) == 1500
    assert await pending(books.database) == 0


async def test_a_commit_whose_answer_is_lost_is_not_done_again(
    books: Books, outage: FakeOutageDatabase
) -> None:
    await add_events(books, await books.new_caller(), 3)
    outage.loses_answers = True
    with pytest.raises(LedgerUnavailable):
        await sequencer(outage).once()
    outage.loses_answers = False
    await sequencer(outage).once()
    assert await require_exact(books.database) == 3


async def test_a_server_that_dies_between_reading_and_writing_leaves_everything(
    books: Books, outage: FakeOutageDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    await add_events(books, await books.new_caller(), 3)

    def die(*_: object) -> None:
        outage.is_down = True

    dying = sequencer(outage)
    compute = dying._computed
    monkeypatch.setattr(dying, "_computed", lambda found: (die(), compute(found))[1])
    with pytest.raises(LedgerUnavailable):
        await dying.once()
    outage.is_down = False
    assert await pending(books.database) == 3
    await sequencer(outage).once()
    assert await require_exact(books.database) == 3


async def test_a_schema_of_a_later_release_is_left_alone(books: Books) -> None:
    """Its rows may have columns that this release would leave out of the leaf."""
    await add_events(books, await books.new_caller(), 1)
    await sequencer(books.database, revision="0021").once()
    assert await pending(books.database) == 1
    assert (await books.database.read(log_sql.head)).size == 0


async def test_an_id_without_a_row_holds_nothing_up(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAVES_AT_ONCE", 2)
    ghosts = [{"id": f"00{n:010x}"} for n in range(3)]
    await books.database.write(lambda c: c.execute(insert(log_pending), ghosts) and None)
    await add_events(books, await books.new_caller(), 5)
    await sequencer(books.database).once()
    assert await pending(books.database) == 3
    assert (await books.database.read(log_sql.head)).size == 5


@pytest.mark.parametrize("damage", ["changed", "deleted", "shortened"])
async def test_nothing_is_signed_over_a_damaged_log(books: Books, damage: str) -> None:
    caller = await books.new_caller()
    await add_events(books, caller, 3)
    await sequencer(books.database).once()
    entries = hashlib.sha256(b"").digest() * (1 if damage == "shortened" else 3)
    change = delete(log_bundles) if damage == "deleted" else update(log_bundles).values(entries=entries)
    await books.database.write(lambda c: c.execute(change) and None)
    before = await books.database.read(log_sql.head)
    await add_events(books, caller, 1)
    with pytest.raises(LogDamaged):
        await sequencer(books.database).once()
    assert await books.database.read(log_sql.head) == before
    assert await pending(books.database) == 1


@pytest.mark.parametrize("steps", [(1, 255, 1), (65_535, 1, 1), (65_536, 300, 65_000), (70_000, 7)], ids=str)
def test_a_growth_has_the_root_and_the_tiles_of_the_whole_tree(steps: tuple[int, ...]) -> None:
    entries = [hashlib.sha256(str(n).encode()).digest() for n in range(sum(steps))]
    edge, tiles, at = Edge(0, EMPTY_ROOT, b"", {}), dict[tuple[int, int], bytes](), 0
    for step in steps:
        found = grown(edge, entries[at : at + step])
        at += step
        tiles |= found.tiles
        edge = edge_of(found.size, found.root, found.bundles, tiles)
    leaves = [hashlib.sha256(b"\0" + one).digest() for one in entries]
    assert edge.root == by_definition(leaves)
    full = len(leaves) // TILE_WIDTH
    level_1 = b"".join(tiles[1, n] for n in range((full + TILE_WIDTH - 1) // TILE_WIDTH))
    assert level_1 == b"".join(by_definition(leaves[n * 256 : n * 256 + 256]) for n in range(full))
    assert Tree(full * TILE_WIDTH, lambda level, n: tiles[level, n]).root() == by_definition(
        leaves[: full * TILE_WIDTH]
    )


def edge_of(size: int, root: bytes, bundles: object, tiles: dict[tuple[int, int], bytes]) -> Edge:
    assert isinstance(bundles, dict)
    entries = bundles.get(size // TILE_WIDTH, b"") if size % TILE_WIDTH else b""
    found, level, count = {}, 1, size >> 8
    while count:
        number, width = divmod(count, TILE_WIDTH)
        found[level] = tiles[level, number] if width else b""
        level, count = level + 1, number
    return Edge(size, root, entries, found)


async def test_the_checkpoint_is_by_the_ledgers_key(books: Books) -> None:
    await sequencer(books.database).once()
    head = await books.database.read(log_sql.head)
    assert head.note.startswith(f"{SIGNER.origin}\n0\n")
    assert head.signed_at == AT


async def test_a_server_that_stands_by_works_only_while_no_other_moves_the_head(books: Books) -> None:
    caller = await books.new_caller()
    standing_by = sequencer(books.database)
    for _ in range(3):
        await add_events(books, caller, 1)
        await sequencer(books.database).once()
        await add_events(books, caller, 1)
        await standing_by.once_if_alone()
        assert await pending(books.database) == 1
    await standing_by.once_if_alone()
    assert await require_exact(books.database) == 6


async def test_of_two_names_for_one_log_the_last_goes_on_and_the_other_says_so(books: Books) -> None:
    first, caller = sequencer(books.database), await books.new_caller()
    other = signer(b"another secret", "elsewhere.example/log")
    last = sequencer(books.database, by=other)
    for server in (first, last):
        await add_events(books, caller, 1)
        await server.once()
    for _ in range(2):
        await add_events(books, caller, 1)
        with pytest.raises(OtherSigner, match=r"as 'elsewhere\.example/log', this one as 'example\.com/log'"):
            await first.once()
        await last.once()
    found = await books.database.read(lambda c: signed(c, other))
    assert (found.origin, found.size) == ("elsewhere.example/log", 4)


async def test_a_server_that_stands_by_leaves_the_log_its_name(books: Books) -> None:
    await add_events(books, await books.new_caller(), 1)
    await sequencer(books.database).once()
    standing_by = sequencer(books.database, by=signer(b"another secret", "elsewhere.example/log"))
    await standing_by.once_if_alone()
    with pytest.raises(OtherSigner):
        await standing_by.once_if_alone()
