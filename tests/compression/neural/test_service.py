"""The service with a fake network that can be held, so that what waits is known."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import numpy as np
import pytest

from compression.neural.batching import Floats, Job, NeuralClosed, NeuralOverloaded, NeuralService, Window


class FakeNetwork:
    """A fake: the output of a window is the sum of its ids. It waits while `gate` is closed, and fails on id 666."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.entered = threading.Event()
        self.batches: list[list[int]] = []
        self.gate.set()

    def run(self, batch: Sequence[Window]) -> list[Floats]:
        self.batches.append([len(window) for window in batch])
        self.entered.set()
        assert self.gate.wait(10)
        if any(666 in window.ids for window in batch):
            raise ArithmeticError("666")
        return [np.array([sum(window.ids)], np.float32) for window in batch]


def job(*lengths: int, of: int = 1) -> Job[list[float]]:
    windows = tuple(Window((of,) * length) for length in lengths)
    return Job(windows, lambda outputs: [float(output[0]) for output in outputs])


async def held(network: FakeNetwork, service: NeuralService) -> asyncio.Task[list[float]]:
    """A request whose batch is in the network and stays there."""
    network.gate.clear()
    task = asyncio.create_task(service.run(job(1)))
    await asyncio.get_running_loop().run_in_executor(None, network.entered.wait, 10)
    return task


async def test_every_request_gets_its_own_outputs_in_order() -> None:
    service = NeuralService(FakeNetwork(), token_budget=8, max_waiting_tokens=10_000)
    found = await asyncio.gather(*(service.run(job(3, 1, 2, of=number)) for number in range(20)))
    assert found == [[3.0 * n, 1.0 * n, 2.0 * n] for n in range(20)]
    await service.close()


async def test_windows_of_several_requests_share_a_batch() -> None:
    network = FakeNetwork()
    service = NeuralService(network, token_budget=12, max_waiting_tokens=1000)
    first = await held(network, service)
    others = [asyncio.create_task(service.run(job(4))) for _ in range(3)]
    await asyncio.sleep(0)
    network.gate.set()
    await asyncio.gather(first, *others)
    assert network.batches == [[1], [4, 4, 4]]
    await service.close()


async def test_requests_take_turns_so_that_a_short_one_does_not_wait_for_all_of_a_long_one() -> None:
    network = FakeNetwork()
    service = NeuralService(network, token_budget=1, max_waiting_tokens=1000)
    first = await held(network, service)
    long = asyncio.create_task(service.run(job(*[5] * 20)))
    await asyncio.sleep(0)
    short = asyncio.create_task(service.run(job(7, 7)))
    await asyncio.sleep(0)
    network.gate.set()
    await asyncio.gather(first, long, short)
    assert network.batches[:6] == [[1], [5], [7], [5], [7], [5]]
    await service.close()


async def test_more_than_may_wait_is_refused_by_name_and_what_waits_is_served() -> None:
    network = FakeNetwork()
    service = NeuralService(network, token_budget=100, max_waiting_tokens=10)
    first = await held(network, service)
    second = asyncio.create_task(service.run(job(8)))
    await asyncio.sleep(0)
    with pytest.raises(NeuralOverloaded) as refused:
        await service.run(job(3))
    assert (refused.value.waiting_tokens, refused.value.limit) == (11, 10)
    network.gate.set()
    assert await asyncio.gather(first, second) == [[1.0], [8.0]]
    assert service.waiting_tokens == 0
    await service.close()


async def test_a_request_larger_than_the_queue_is_served_when_nothing_waits() -> None:
    service = NeuralService(FakeNetwork(), token_budget=4, max_waiting_tokens=5)
    assert await service.run(job(4, 4, 4)) == [4.0, 4.0, 4.0]
    await service.close()


async def test_a_cancelled_request_leaves_the_queue() -> None:
    network = FakeNetwork()
    service = NeuralService(network, token_budget=100, max_waiting_tokens=100)
    first = await held(network, service)
    gone = asyncio.create_task(service.run(job(7)))
    await asyncio.sleep(0)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert service.waiting_tokens == 0
    network.gate.set()
    await first
    assert network.batches == [[1]]
    await service.close()


async def test_what_the_network_raises_reaches_those_of_its_batch_and_no_others() -> None:
    service = NeuralService(FakeNetwork(), token_budget=1, max_waiting_tokens=100)
    bad, good = await asyncio.gather(
        service.run(job(1, of=666)), service.run(job(1, of=5)), return_exceptions=True
    )
    assert isinstance(bad, ArithmeticError)
    assert good == [5.0]
    await service.close()


async def test_closing_fails_what_waits_and_refuses_what_comes() -> None:
    network = FakeNetwork()
    service = NeuralService(network, token_budget=1, max_waiting_tokens=100)
    first = await held(network, service)
    waiting = asyncio.create_task(service.run(job(5)))
    await asyncio.sleep(0)
    closing = asyncio.create_task(service.close())
    await asyncio.sleep(0)
    network.gate.set()
    await closing
    assert await first == [1.0]
    for late in (waiting, service.run(job(1))):
        with pytest.raises(NeuralClosed):
            await late
