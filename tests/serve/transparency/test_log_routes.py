"""`/log/…` as a reader of that world meets it: a signed checkpoint, and tiles that give its root."""

from __future__ import annotations

import asyncio
import hashlib
from datetime import UTC, datetime

import pytest

from billing.store.database import Database
from billing.store.migration import newest_revision
from billing.transparency import log_sql
from billing.transparency.notes import checkpoint, opened
from billing.transparency.sequencer import Sequencer
from billing.transparency.tree import Tree
from serve.money.ledger_setup import log_signer
from serve.transparency import log_reader
from serve.transparency.log_reader import LogReader
from serve.transparency.route import AskedTile, asked_tile
from tests.serve.served import Client, Served

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def sequence(served: Served) -> None:
    now = lambda: datetime.now(UTC)  # noqa: E731
    sequencer = Sequencer(served.database, log_signer(served.settings), revision=newest_revision(), clock=now)
    await sequencer.once()


async def asked(served: Served, path: str) -> Client:
    return await Client(served.api, f"/log/{path}").run()


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each checkpoint as it is."""
    monkeypatch.setattr(log_reader, "KEPT_S", 0)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("0/000", AskedTile(0, 0, 256)),
        ("63/x001/x234/067.p/255", AskedTile(63, 1_234_067, 255)),
        ("entries/x001/000.p/1", AskedTile(None, 1000, 1)),
        ("0/x999/x999/x999/x999/x999/x999/999", AskedTile(0, 10**21 - 1, 256)),
        *(
            (wrong, None)
            for wrong in ("", "0", "0/", "00/000", "64/000", "-1/000", "0/0", "0/0000", "0/1234")
        ),
        *(
            (wrong, None)
            for wrong in ("0/x000/001", "0/x01/001", "0/001/001", "0/x001", "0/000.p/0", "0/000.p/256")
        ),
        *(
            (wrong, None)
            for wrong in (
                "0/000.p/01",
                "0/000.p/",
                "0/000/",
                "0/../000",
                "0/\u0660\u0660\u0660",
                "entries/000.p/999",
            )
        ),
        ("0/" + "x001/" * 400 + "000", None),
    ],
)
async def test_a_tile_has_one_path(path: str, expected: AskedTile | None) -> None:
    assert asked_tile(path) == expected


async def test_nothing_was_signed_yet(served: Served) -> None:
    reply = await asked(served, "checkpoint")
    if reply.status == 404:
        assert reply.json()["error"]["type"] == "invalid_request_error"
    await sequence(served)
    assert (await asked(served, "checkpoint")).status == 200


async def test_the_tiles_give_the_root_that_is_signed(served: Served) -> None:
    assert (await served.chat().run()).status == 200
    await served.events()
    await sequence(served)
    reply = await asked(served, "checkpoint")
    assert reply.reply_headers["content-type"] == "text/plain; charset=utf-8"
    assert reply.reply_headers["cache-control"] == "no-cache"
    signed = checkpoint(opened(reply.body.decode(), log_signer(served.settings).verifier))
    assert 0 < signed.size < 256
    tile = await asked(served, f"tile/0/000.p/{signed.size}")
    assert tile.reply_headers["content-type"] == "application/octet-stream"
    assert "immutable" in tile.reply_headers["cache-control"]
    assert len(tile.body) == 32 * signed.size
    assert Tree(signed.size, lambda level, number: tile.body).root() == signed.root
    entries = (await asked(served, f"tile/entries/000.p/{signed.size}")).body
    pieces = [entries[at : at + 34] for at in range(0, len(entries), 34)]
    assert all(piece[:2] == b"\0\x20" for piece in pieces)
    assert b"".join(hashlib.sha256(b"\0" + piece[2:]).digest() for piece in pieces) == tile.body


@pytest.mark.parametrize(
    "path",
    [
        "tile/0/000",
        "tile/0/000.p/255",
        "tile/1/000.p/1",
        "tile/0/001.p/1",
        "tile/entries/001",
        "tile/63/000",
        "other",
    ],
)
async def test_what_the_tree_has_not_is_not_found(served: Served, path: str) -> None:
    await sequence(served)
    reply = await asked(served, path)
    assert (reply.status, "cache-control" in reply.reply_headers) == (404, False)


async def test_a_number_that_no_column_holds_is_not_found(served: Served) -> None:
    assert (await asked(served, "tile/7/x999/x999/x999/x999/x999/x999/999.p/1")).status == 404


async def test_an_older_width_is_the_beginning_of_a_newer_one(served: Served) -> None:
    for _ in range(2):
        assert (await served.chat().run()).status == 200
        await served.events()
    await sequence(served)
    one, two = [(await asked(served, f"tile/0/000.p/{width}")).body for width in (1, 2)]
    assert (len(one), len(two), two[:32]) == (32, 64, one)


@pytest.mark.parametrize("path", ["checkpoint", "tile/0/000.p/1", "tile/entries/000.p/1"])
async def test_without_its_ledger_the_log_is_unavailable(served: Served, path: str) -> None:
    served.database.is_down = True
    reply = await asked(served, path)
    assert (reply.status, reply.json()["error"]["code"]) == (503, "ledger_unavailable")
    assert "Traceback" not in reply.body.decode()


class Bundles:
    """Of a full tree, without a ledger."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, bundles: int) -> None:
        self.reads = 0
        self.go = asyncio.Event()
        self.go.set()
        monkeypatch.setattr(log_sql, "piece", self._piece)
        self._bundles = bundles

    def _piece(self, _: object, *, level: int, number: int, width: int) -> bytes | None:
        return bytes([number % 256]) * 32 * width if number < self._bundles else None

    async def read(self, work: object) -> object:
        self.reads += 1
        await self.go.wait()
        assert callable(work)
        return work(None)


async def test_full_tiles_are_read_once_and_partial_ones_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    bundles = Bundles(monkeypatch, 10)
    log = LogReader(as_database(bundles))
    for _ in range(3):
        assert len(await log.piece(0, 1, 256) or b"") == 8192
        assert len(await log.piece(0, 1, 7) or b"") == 7 * 32
    assert bundles.reads == 1
    for _ in range(3):
        await log.piece(1, 2, 9)
    assert bundles.reads == 4


async def test_not_all_tiles_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "KEPT_TILES", 3)
    bundles = Bundles(monkeypatch, 10)
    log = LogReader(as_database(bundles))
    for number in (0, 1, 2, 0, 3, 0, 1):
        await log.piece(1, number, 256)
    assert bundles.reads == 5


async def test_a_crowd_asks_the_ledger_one_question_at_a_time_and_is_told_when_it_is_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_reader, "PATIENCE_S", 0.05)
    bundles = Bundles(monkeypatch, 1000)
    bundles.go.clear()
    log = LogReader(as_database(bundles))
    crowd = [asyncio.create_task(log.piece(1, number, 256)) for number in range(200)]
    done, waiting = await asyncio.wait(crowd[1:], timeout=30)
    assert not waiting and bundles.reads == 1
    assert {type(one.exception()).__name__ for one in done} == {"LedgerUnavailable"}
    bundles.go.set()
    assert len(await crowd[0] or b"") == 8192


def as_database(bundles: Bundles) -> Database:
    found: object = bundles
    assert hasattr(found, "read")
    return found  # type: ignore[return-value]
