"""A result that requests share: made while anybody waits for it, and claimed by one at a time."""

from __future__ import annotations

import asyncio

import pytest

from compression.pipeline.compression_model import Receipt
from serve.prompt_compression.outcome import Compression, SharedResult

MADE = Compression(("kept",), Receipt(10, 3, 0.3, 1.0, "words", ()))
pytestmark = pytest.mark.asyncio


class Maker:
    """A fake: it counts how often it is asked, and answers when it is let go on."""

    def __init__(self) -> None:
        self.began = self.cancelled = 0
        self.go_on = asyncio.Event()
        self.failure: Exception | None = None

    async def __call__(self) -> Compression:
        self.began += 1
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.failure is not None:
            raise self.failure
        return MADE


async def waiting(shared: SharedResult, make: Maker, count: int) -> list[asyncio.Task[Compression]]:
    tasks = [asyncio.create_task(shared.made(make)) for _ in range(count)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return tasks


async def test_it_is_made_once_for_all_that_wait() -> None:
    shared, make = SharedResult(), Maker()
    tasks = await waiting(shared, make, 3)
    make.go_on.set()
    assert await asyncio.gather(*tasks) == [MADE] * 3
    assert await shared.made(make) is MADE
    assert make.began == 1


async def test_it_goes_on_while_one_is_left_and_ends_with_the_last() -> None:
    shared, make = SharedResult(), Maker()
    first, second = await waiting(shared, make, 2)
    first.cancel()
    await asyncio.wait([first])
    assert make.cancelled == 0
    second.cancel()
    await asyncio.wait([second])
    assert (make.began, make.cancelled) == (1, 1)


async def test_who_comes_after_all_had_left_has_it_made_anew() -> None:
    shared, make = SharedResult(), Maker()
    (first,) = await waiting(shared, make, 1)
    first.cancel()
    (second,) = await waiting(shared, make, 1)
    make.go_on.set()
    assert await second is MADE
    assert make.began == 2


async def test_its_failure_is_of_all_that_wait_and_of_nobody_later() -> None:
    shared, make = SharedResult(), Maker()
    tasks = await waiting(shared, make, 2)
    make.failure = ValueError("it died")
    make.go_on.set()
    assert [str(error) for error in await asyncio.gather(*tasks, return_exceptions=True)] == ["it died"] * 2
    make.failure = None
    assert await shared.made(make) is MADE


async def test_one_pays_and_the_next_only_if_that_failed() -> None:
    shared = SharedResult()
    assert shared.claim() and not shared.claim()
    shared.end_claim(is_paid=False)
    assert shared.claim()
    shared.end_claim(is_paid=True)
    assert not shared.claim() and shared.is_paid


async def test_of_those_that_wait_for_a_payment_that_fails_one_claims_it() -> None:
    shared, claimed = SharedResult(), 0

    async def pay() -> None:
        nonlocal claimed
        await shared.when_unclaimed()
        if shared.claim():
            claimed += 1
            await asyncio.sleep(0)
            shared.end_claim(is_paid=True)

    assert shared.claim()
    others = [asyncio.create_task(pay()) for _ in range(3)]
    await asyncio.sleep(0)
    shared.end_claim(is_paid=False)
    await asyncio.gather(*others)
    assert claimed == 1
