"""Pieces are gathered, none is lost, the first is not held back, and the source ends with its reader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.vllm.reply_pieces import coalesce
from tests.simulation.loop import SimulatedLoop

NEVER_S = 1e9
SOON_S = 5.0


class Source:
    """A fake source that yields what the test feeds it, and notes its own end."""

    def __init__(self) -> None:
        self._fed: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        self._took = asyncio.Event()
        self.taken = 0
        self.closed = asyncio.Event()

    def feed(self, *items: bytes | Exception | None) -> None:
        """Pieces, an exception to raise, or None for the end."""
        for item in items:
            self._fed.put_nowait(item)

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        try:
            while (item := await self._fed.get()) is not None:
                if isinstance(item, Exception):
                    raise item
                self.taken += 1
                self._took.set()
                yield item
        finally:
            self.closed.set()

    async def all_taken(self, count: int) -> None:
        """Wait until the source was asked for `count` pieces, however its reader is doing."""
        async with asyncio.timeout(SOON_S):
            while self.taken < count:
                self._took.clear()
                await self._took.wait()


def gather(
    source: Source, *, interval_s: float = NEVER_S, heartbeat_s: float = NEVER_S
) -> AsyncGenerator[bytes, None]:
    return coalesce(source.pieces(), interval_s=interval_s, heartbeat_s=heartbeat_s)


async def soon(pieces: AsyncIterator[bytes]) -> bytes:
    async with asyncio.timeout(SOON_S):
        return await anext(pieces)


async def turns(count: int) -> None:
    """Let everything else on the loop run so often."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_the_first_piece_leaves_at_once() -> None:
    source = Source()
    async with aclosing(gather(source)) as pieces:
        source.feed(b"first")
        assert await soon(pieces) == b"first"


async def test_what_comes_within_the_interval_travels_together() -> None:
    source = Source()
    async with aclosing(gather(source)) as pieces:
        source.feed(b"a")
        assert await soon(pieces) == b"a"
        waiting = asyncio.create_task(soon(pieces))
        for count, piece in enumerate((b"b", b"c", b"d"), start=2):
            source.feed(piece)
            await source.all_taken(count)
            await turns(5)
            assert not waiting.done()
        source.feed(None)
        assert await waiting == b"bcd"
        with pytest.raises(StopAsyncIteration):
            await soon(pieces)


async def test_the_end_of_the_interval_lets_go_of_what_was_gathered() -> None:
    source = Source()
    async with aclosing(gather(source, interval_s=0.01)) as pieces:
        source.feed(b"a")
        assert await soon(pieces) == b"a"
        source.feed(b"b")
        assert await soon(pieces) == b"b"
        assert not source.closed.is_set()


async def test_what_comes_while_the_reader_is_away_is_one_piece() -> None:
    source = Source()
    async with aclosing(gather(source, interval_s=0)) as pieces:
        source.feed(b"a")
        assert await soon(pieces) == b"a"
        source.feed(b"b", b"c", b"d")
        await source.all_taken(4)
        assert await soon(pieces) == b"bcd"


async def test_what_came_before_the_end_is_not_lost_while_the_reader_is_away() -> None:
    source = Source()
    async with aclosing(gather(source)) as pieces:
        source.feed(b"a")
        assert await soon(pieces) == b"a"
        source.feed(b"b", b"c", None)
        await source.closed.wait()
        await turns(5)
        assert await soon(pieces) == b"bc"
        with pytest.raises(StopAsyncIteration):
            await soon(pieces)


async def test_a_silent_source_is_told_from_a_dead_one_by_empty_pieces() -> None:
    source = Source()
    async with aclosing(gather(source, interval_s=0, heartbeat_s=0.001)) as pieces:
        for _ in range(3):
            assert await soon(pieces) == b""
        source.feed(b"at last")
        found = await soon(pieces)
        while not found:
            found = await soon(pieces)
        assert found == b"at last"
        assert await soon(pieces) == b""


async def test_the_end_of_an_empty_source_is_the_end() -> None:
    source = Source()
    source.feed(None)
    assert [piece async for piece in gather(source)] == []


async def test_an_error_comes_after_the_pieces_before_it() -> None:
    source, found = Source(), []
    source.feed(b"a", b"b", b"c", ValueError("broken"))
    with pytest.raises(ValueError, match="broken"):
        async for piece in gather(source):
            found.append(piece)
    assert b"".join(found) == b"abc"


async def test_an_error_in_the_interval_does_not_wait_for_its_end() -> None:
    source = Source()
    async with aclosing(gather(source)) as pieces:
        source.feed(b"a")
        assert await soon(pieces) == b"a"
        source.feed(b"b", ValueError("broken"))
        assert await soon(pieces) == b"b"
        with pytest.raises(ValueError, match="broken"):
            await soon(pieces)


async def test_an_error_before_every_piece_is_raised() -> None:
    source = Source()
    source.feed(ValueError("broken"))
    with pytest.raises(ValueError, match="broken"):
        await soon(gather(source))


@pytest.mark.parametrize("taken", [0, 1])
async def test_closing_closes_the_source_and_leaves_no_task(taken: int) -> None:
    source = Source()
    pieces = gather(source, heartbeat_s=0.001)
    assert await soon(pieces) == b""
    for _ in range(taken):
        source.feed(b"a")
        while await soon(pieces) != b"a":
            pass
    await pieces.aclose()
    assert source.closed.is_set()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_cancelled_reader_closes_the_source_before_it_goes() -> None:
    source = Source()

    async def read() -> None:
        async with aclosing(gather(source)) as pieces:
            async for _ in pieces:
                pass

    reading = asyncio.create_task(read())
    source.feed(b"a")
    await source.all_taken(1)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert source.closed.is_set()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_source_that_fails_while_it_is_closed_disturbs_nobody() -> None:
    async def stubborn() -> AsyncGenerator[bytes, None]:
        try:
            yield b"a"
            await asyncio.Event().wait()
        finally:
            raise ValueError("closing failed")

    pieces = coalesce(stubborn(), interval_s=0, heartbeat_s=NEVER_S)
    assert await soon(pieces) == b"a"
    await pieces.aclose()


@given(
    st.lists(st.tuples(st.binary(max_size=4), st.integers(0, 2))),
    st.sampled_from([0, 0.0001, NEVER_S]),
    st.booleans(),
    st.integers(0, 4),
)
def test_no_byte_is_lost_doubled_or_moved(
    schedule: list[tuple[bytes, int]], interval_s: float, fails: bool, reader_pauses: int
) -> None:
    async def source() -> AsyncGenerator[bytes, None]:
        for piece, pauses in schedule:
            await turns(pauses)
            yield piece
        if fails:
            raise ValueError("broken")

    async def read() -> tuple[bytes, bool]:
        found = b""
        try:
            async for piece in coalesce(source(), interval_s=interval_s, heartbeat_s=NEVER_S):
                found += piece
                await turns(reader_pauses)
        except ValueError:
            return found, True
        return found, False

    assert asyncio.run(read()) == (b"".join(piece for piece, _ in schedule), fails)


def test_streams_of_one_interval_send_their_pieces_at_the_same_moments() -> None:
    sent_at: dict[str, list[float]] = {}

    async def read(name: str, begin_s: float) -> None:
        await asyncio.sleep(begin_s)

        async def tokens() -> AsyncGenerator[bytes, None]:
            for _ in range(9):
                yield b"."
                await asyncio.sleep(0.7)

        loop = asyncio.get_running_loop()
        async for piece in coalesce(tokens(), interval_s=2.0, heartbeat_s=NEVER_S):
            if piece:
                sent_at.setdefault(name, []).append(round(loop.time(), 3))

    async def both() -> None:
        await asyncio.gather(read("early", 0.3), read("late", 1.5))

    loop = SimulatedLoop(Random(1))
    loop.run_until_complete(both())
    loop.close()
    # The first at once, and any that nothing came before; what is left at the end; and in between every two seconds,
    # whenever a stream began.
    assert sent_at == {"early": [0.3, 2.0, 4.0, 6.0], "late": [1.5, 2.2, 4.0, 6.0, 7.8]}
