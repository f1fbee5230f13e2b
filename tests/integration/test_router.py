"""The routing that Ray Serve loads by its own interface; the replicas are stand-ins with names."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from models.engine import EngineRequest
from serve.cluster.replicas.cached_beginnings import beginnings

pytestmark = pytest.mark.integration

LONG = "You are a patient librarian who answers in one sentence. " * 20


def request(text: str) -> EngineRequest:
    return EngineRequest("id", "model", ({"role": "user", "content": text},), 16, True, "workspace")


def pending(*arguments: object) -> Any:
    return SimpleNamespace(args=arguments, routing_context=SimpleNamespace(should_backoff=False))


@dataclass(frozen=True)
class Id:
    unique_id: str


def replica(name: str) -> Any:
    return SimpleNamespace(replica_id=Id(name), name=name)


class Routed:
    """A router with its replicas."""

    def __init__(self, routing: str, count: int = 3) -> None:
        with warnings.catch_warnings():
            # Ray's, of its own use of pydantic. Imported here, since the fast tests go without Ray.
            warnings.simplefilter("ignore")
            from ray.serve._private.common import DeploymentHandleSource, DeploymentID

            from serve.cluster.replicas.router import ReplicaRouter
        self.router = ReplicaRouter(DeploymentID("model", "app"), DeploymentHandleSource.REPLICA)
        self.router.initialize_state(routing=routing)
        self.replicas = [replica(f"replica-{number}") for number in range(count)]
        if self.router.caches is not None:
            self.router.caches.run([each.replica_id for each in self.replicas], 0.0)

    async def ranks(self, *arguments: object) -> list[list[str]]:
        chosen = await self.router.choose_replicas(self.replicas, pending(*arguments))
        return [[each.name for each in rank] for rank in chosen]

    async def first(self, text: str) -> str:
        """Where a prompt is sent."""
        keys = beginnings(request(text))
        name = (await self.ranks(keys))[0][0]
        if self.router.caches is not None:
            self.router.caches.send(Id(name), keys, time.monotonic())
        return name


async def test_a_conversation_stays_on_its_replica_and_others_are_ranked_behind() -> None:
    routed = Routed("prefix_cache")
    home = await routed.first(LONG)
    ranks = await routed.ranks(beginnings(request(LONG + "And then? " * 30)))
    assert ranks[0] == [home]
    assert sorted(name for rank in ranks for name in rank) == ["replica-0", "replica-1", "replica-2"]


async def test_a_replica_that_is_too_busy_loses_its_conversations() -> None:
    routed = Routed("prefix_cache")
    from serve.cluster.replicas.router import SLACK

    home = await routed.first(LONG)
    busy = next(each for each in routed.replicas if each.name == home)
    for _ in range(SLACK + 1):
        routed.router.begin(busy.replica_id)
    assert await routed.first(LONG) != home
    for _ in range(SLACK + 1):
        routed.router.end(busy.replica_id)
    assert not routed.router.load


async def test_a_prompt_goes_to_the_replica_that_has_told_that_it_is_cached_there() -> None:
    routed = Routed("prefix_cache")
    for each in routed.replicas:
        routed.router.caches[each.replica_id].told = set(beginnings(request(LONG)))
        assert await routed.first(LONG) == each.name
        routed.router.caches[each.replica_id].told.clear()
        routed.router.caches[each.replica_id].on_the_way.clear()


@pytest.mark.parametrize("routing", ["prefix_cache", "round_robin"])
async def test_a_replica_that_died_under_a_request_is_the_last_choice_for_a_while(
    routing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    routed = Routed(routing)
    from serve.cluster.replicas import router as module

    home = next(each for each in routed.replicas if each.name == "replica-1")
    if routed.router.caches is not None:
        routed.router.caches[home.replica_id].told = set(beginnings(request(LONG)))
    routed.router.avoid(home.replica_id)
    for _ in range(3):
        assert (await routed.ranks(beginnings(request(LONG))))[-1] == ["replica-1"]
    later = time.monotonic() + module.AVOIDED_S
    monkeypatch.setattr(module.time, "monotonic", lambda: later)
    chosen = [(await routed.ranks(beginnings(request(LONG))))[0] for _ in range(3)]
    assert ["replica-1"] in chosen


@pytest.mark.parametrize("routing", ["prefix_cache", "round_robin"])
async def test_of_replicas_that_died_the_one_that_died_first_comes_first(routing: str) -> None:
    routed = Routed(routing)
    if routed.router.caches is not None:
        routed.router.caches[Id("replica-1")].told = set(beginnings(request(LONG)))
    for died in ("replica-2", "replica-0", "replica-1"):
        routed.router.avoid(next(each.replica_id for each in routed.replicas if each.name == died))
    for _ in range(3):
        assert await routed.ranks(beginnings(request(LONG))) == [["replica-2"], ["replica-0"], ["replica-1"]]


async def test_round_robin_takes_the_replicas_in_turn() -> None:
    routed = Routed("round_robin")
    assert [await routed.first(LONG) for _ in range(4)] == [
        "replica-0",
        "replica-1",
        "replica-2",
        "replica-0",
    ]


@pytest.mark.parametrize("routing", ["prefix_cache", "round_robin"])
async def test_one_replica_is_the_choice_and_a_call_without_a_request_is_ranked(routing: str) -> None:
    assert await Routed(routing, count=1).ranks([1, 2]) == [["replica-0"]]
    assert len(await Routed(routing).ranks()) == len(await Routed(routing).ranks(request(LONG))) == 3
