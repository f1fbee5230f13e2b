"""Places on replicas, in order of asking and no more than there are."""

from __future__ import annotations

import asyncio
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from models.engine import EngineRequest
from models.errors import EngineUnavailable
from serve.cluster.replicas.address import READ_BY_ALL, READS, Address
from serve.cluster.replicas.cached_beginnings import beginnings
from serve.cluster.replicas.known_caches import KnownCaches
from serve.cluster.replicas.pool import ReplicaClient, Replicas
from serve.config.chat_models import ReplicaSettings
from serve.config.server_settings import ServerSettings
from serve.fairness.places import QueueFull
from serve.metrics.background import WaitingMetrics
from tests.serve.metrics.readings import counting

with warnings.catch_warnings():
    # Ray Serve uses what pydantic is going to remove.
    warnings.simplefilter("ignore", DeprecationWarning)
    from serve.cluster.replicas.engine import RayEngine

REQUEST = EngineRequest("id", "model", ({"role": "user", "content": "hi"},), 16, False, "salt")


def metadata(name: str, reads: frozenset[str] = READ_BY_ALL) -> dict[str, Any]:
    return Address(name, 1, "secret", reads).metadata()


@dataclass(slots=True)
class FakeRay:
    """A handle, its router and its counts of load, as far as `Replicas` looks at them."""

    replicas: dict[str, int] = field(default_factory=dict)
    running: Counter[str] = field(default_factory=Counter)
    queued: int = 0
    woken: int = 0
    on_change: Callable[[], None] = lambda: None
    is_initialized: bool = True
    caches: KnownCaches | None = None
    # Those that are not here are of a version before.
    reads: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def curr_replicas(self) -> dict[str, Any]:
        return {
            name: SimpleNamespace(
                replica_id=name,
                max_ongoing_requests=room,
                replica_metadata=metadata(name, self.reads.get(name, READ_BY_ALL)),
            )
            for name, room in self.replicas.items()
        }

    def set(self, **replicas: int) -> None:
        self.replicas = replicas
        self.on_change()

    def begin(self, name: str) -> None: ...

    def end(self, name: str) -> None: ...

    def on_replica_actor_died(self, name: str) -> None:
        self.replicas.pop(name, None)
        self.on_change()

    def inc_num_queued_requests(self) -> None:
        self.queued += 1

    def dec_num_queued_requests(self) -> None:
        self.queued -= 1

    def inc_num_running_requests_for_replica(self, name: str) -> None:
        self.running[name] += 1

    def dec_num_running_requests_for_replica(self, name: str) -> None:
        self.running[name] -= 1

    def options(self, **options: object) -> FakeRay:
        return self

    async def remote(self) -> None:
        self.woken += 1
        self.set(started=2)

    @asynccontextmanager
    async def choose_replica(self, keys: list[int], *, _reserve: bool) -> AsyncIterator[Any]:
        assert not _reserve
        name = min(self.replicas, key=lambda name: self.running[name])
        yield SimpleNamespace(_replica=SimpleNamespace(replica_id=name), replica_metadata=metadata(name))

    async def choose_replicas(self, candidates: list[Any]) -> list[list[Any]]:
        return [[one] for one in sorted(candidates, key=lambda one: self.running[one.replica_id])]

    @property
    def _router(self) -> Any:
        return SimpleNamespace(_asyncio_router=SimpleNamespace(request_router=self, _metrics_manager=self))


def replicas_of(ray: FakeRay, max_queued: int = 10) -> Replicas:
    return Replicas(ray, ReplicaClient(), max_queued=max_queued)  # type: ignore[arg-type]


async def others_run() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def take(replicas: Replicas, stack: AsyncExitStack, asked: EngineRequest = REQUEST) -> str:
    lease = await stack.enter_async_context(replicas.lease(asked))
    return lease.address.host


async def test_ray_sees_each_request_on_its_replica_until_it_ends() -> None:
    ray = FakeRay({"a": 4, "b": 4})
    replicas = replicas_of(ray)
    async with AsyncExitStack() as stack:
        for _ in range(6):
            await take(replicas, stack)
        assert ray.running == {"a": 3, "b": 3}
    assert ray.running.total() == 0


async def test_a_prompt_is_on_its_way_to_the_replica_that_was_chosen() -> None:
    caches = KnownCaches()
    ray = FakeRay({"a": 4, "b": 4}, caches=caches)
    caches.run(ray.replicas, 0.0)
    replicas = replicas_of(ray)
    asked = replace(REQUEST, messages=({"role": "user", "content": "a long question " * 50},))
    async with replicas.lease(asked) as lease:
        other = next(iter(ray.replicas.keys() - {lease.replica_id}))
        assert caches[lease.replica_id].blocks_of(beginnings(asked)) == len(beginnings(asked)) > 0
        assert caches[other].blocks_of(beginnings(asked)) == 0
    await replicas.close()


async def test_what_some_replicas_are_too_old_for_goes_to_another_and_all_else_to_all() -> None:
    ray = FakeRay({"old": 8, "new": 8, "older": 8}, reads={"new": READS})
    replicas = replicas_of(ray)
    async with AsyncExitStack() as stack:
        flex = [await take(replicas, stack, replace(REQUEST, tier="flex")) for _ in range(3)]
        others = [await take(replicas, stack) for _ in range(6)]
    assert (flex, Counter(others)) == (["new"] * 3, {"old": 3, "older": 3})


async def test_where_all_are_too_old_one_says_so() -> None:
    ray = FakeRay({"old": 8, "older": 8})
    async with AsyncExitStack() as stack:
        assert await take(replicas_of(ray), stack, replace(REQUEST, tier="flex")) in ray.replicas


async def test_a_request_is_counted_as_waiting_until_it_has_a_place() -> None:
    counts, registry = counting()
    ray = FakeRay({"a": 1})
    replicas = Replicas(
        ray,  # type: ignore[arg-type]
        ReplicaClient(),
        max_queued=10,
        waits=WaitingMetrics(counts).of("alpha"),
    )

    def waiting() -> float | None:
        return registry.get_sample_value("pith_chat_requests_waiting", {"model": "alpha"})

    async with AsyncExitStack() as first, AsyncExitStack() as second:
        await take(replicas, first)
        assert waiting() == 0
        later = asyncio.create_task(take(replicas, second))
        await others_run()
        assert waiting() == 1
        await first.aclose()
        await later
        assert waiting() == 0


async def test_more_than_the_replicas_take_wait_in_order_and_are_counted_as_queued() -> None:
    ray = FakeRay({"a": 1})
    replicas, order = replicas_of(ray), []

    async def work(number: int, go_on: asyncio.Event) -> None:
        async with replicas.lease(REQUEST):
            order.append(number)
            await go_on.wait()

    events = [asyncio.Event() for _ in range(4)]
    tasks = [asyncio.create_task(work(number, event)) for number, event in enumerate(events)]
    for number, event in enumerate(events):
        await others_run()
        assert order == list(range(number + 1))
        assert ray.queued == len(events) - number - 1
        event.set()
    await asyncio.gather(*tasks)
    assert ray.queued == ray.running.total() == 0


async def test_who_finds_the_queue_full_is_told_so_at_once() -> None:
    ray = FakeRay({"a": 1})
    replicas = replicas_of(ray, max_queued=1)
    async with replicas.lease(REQUEST):
        waiting = asyncio.create_task(take(replicas, AsyncExitStack()))
        await others_run()
        with pytest.raises(QueueFull):
            await take(replicas, AsyncExitStack())
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    assert ray.queued == 0


@pytest.mark.parametrize("after_its_turn_came", [False, True])
async def test_who_leaves_while_waiting_takes_no_place_along(after_its_turn_came: bool) -> None:
    ray = FakeRay({"a": 1})
    replicas = replicas_of(ray)
    stack = AsyncExitStack()
    await take(replicas, stack)
    waiting = asyncio.create_task(take(replicas, AsyncExitStack()))
    await others_run()
    if after_its_turn_came:
        await stack.aclose()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await stack.aclose()
    async with asyncio.timeout(60), replicas.lease(REQUEST):
        pass
    assert ray.queued == ray.running.total() == 0


async def test_without_a_replica_ray_is_asked_to_start_one() -> None:
    ray = FakeRay()
    async with AsyncExitStack() as stack:
        assert await take(replicas_of(ray), stack) == "started"
    assert ray.woken == 1


async def test_requests_to_a_model_that_ran_before_and_does_not_start_wait_for_so_long_and_no_longer() -> (
    None
):
    class Starting(FakeRay):
        async def remote(self) -> None:
            self.woken += 1
            await asyncio.Event().wait()

    ray, client, waiting = Starting(), ReplicaClient(), list[int]()

    @contextmanager
    def waits() -> Iterator[None]:
        waiting.append(1)
        try:
            yield
        finally:
            waiting.pop()

    async def ask(engine: RayEngine) -> None:
        async for _ in engine.generate(REQUEST):
            pass

    handle: Any = ray
    server = ServerSettings(start_wait_s=0.2, retry_after_s=7)
    engine = RayEngine("model:a", handle, client, replicas=ReplicaSettings(), server=server, waits=waits)
    async with asyncio.timeout(20):
        ends = await asyncio.gather(*(ask(engine) for _ in range(5)), return_exceptions=True)
    assert [(type(end), getattr(end, "retry_after_s", None)) for end in ends] == [(EngineUnavailable, 7)] * 5
    assert (ray.woken, ray.queued, waiting) == (5, 0, [])
    await engine.close()
    await client.close()


async def test_a_new_replica_lets_those_in_who_wait() -> None:
    ray = FakeRay({"a": 1})
    replicas = replicas_of(ray)
    async with AsyncExitStack() as stack:
        await take(replicas, stack)
        waiting = asyncio.create_task(take(replicas, stack))
        await others_run()
        ray.set(a=1, b=1)
        assert await waiting == "b"


async def test_those_who_wait_for_a_replica_that_dies_have_another_started() -> None:
    ray = FakeRay({"a": 1})
    replicas = replicas_of(ray)
    async with AsyncExitStack() as stack:
        lease = await stack.enter_async_context(replicas.lease(REQUEST))
        waiting = asyncio.create_task(take(replicas, stack))
        await others_run()
        replicas.lost(lease)
        assert await waiting == "started"
