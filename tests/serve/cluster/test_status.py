"""What Ray Serve says of applications: which models cannot start, and why; and the pauses between their starts."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.experimental import internal_kv

from serve.cluster import lineup
from serve.cluster.deployments import starting
from serve.cluster.deployments.ops import replica_gauges
from serve.cluster.deployments.starting import AT_ONCE, LONGEST_PAUSE_S, paced, pause_s
from serve.cluster.lineup import wait_until_running
from serve.cluster.progress import StartError
from serve.cluster.ray_insides.ray_serve import BEGUN_AT, failed_starts
from serve.cluster.replicas.status import away_among, models_away
from tests.serve.cluster.reloading import Quiet
from tests.serve.served import eventually

with warnings.catch_warnings():
    # Ray Serve uses what pydantic is going to remove.
    warnings.simplefilter("ignore", DeprecationWarning)
    import ray.serve

REASON = "models.checkpoint.BrokenCheckpoint: beta: /a/config.json: is no file"
FAILED = f"The deployment failed to start 3 times in a row. Error:\n{REASON}"


def application(
    status: str = "RUNNING", trigger: str = "CONFIG_UPDATE_COMPLETED", message: str = "", **states: int
) -> Any:
    deployment = SimpleNamespace(status_trigger=trigger, replica_states=states, message=message)
    return SimpleNamespace(status=status, message="", deployments={"only": deployment})


def broken(status: str = "DEPLOY_FAILED", **states: int) -> Any:
    return application(status, "REPLICA_STARTUP_FAILED", FAILED, **states)


@pytest.mark.parametrize("status", ["DEPLOY_FAILED", "UNHEALTHY"])
def test_a_model_whose_replicas_do_not_start_is_away_and_says_why(status: str) -> None:
    applications = {
        "model:alpha": application(RUNNING=1),
        "model:beta@2": broken(status, STARTING=1),
        "model:gamma+delta": broken(status),
        # One of two has died, and the other takes its requests.
        "model:two": broken("UNHEALTHY", RUNNING=1),
        "compress:starts": application("DEPLOYING", "CONFIG_UPDATE_STARTED", STARTING=1),
        # It runs, and a health check failed.
        "retrieval:dies": application("UNHEALTHY", "HEALTH_CHECK_FAILED", STARTING=1),
    }
    # Of the first Ray starts another replica, which waits.
    assert away_among(applications) == {"model:beta@2": False, "model:gamma+delta": True}
    away = {model: REASON for model in ("beta", "gamma", "delta")}
    assert models_away(applications) == away
    # After a reload that mended it.
    assert models_away(applications | {"model:beta@3": application(RUNNING=1)}) == {
        model: REASON for model in ("gamma", "delta")
    }


@pytest.mark.parametrize(
    ("other", "is_away"),
    [
        (application("DEPLOYING", "CONFIG_UPDATE_STARTED", STARTING=1), True),
        (application("DELETING", "DELETING", STOPPING=1), True),
        (application("DEPLOYING", "CONFIG_UPDATE_STARTED", RUNNING=1, STARTING=1), False),
        # On demand: it has no replica, and starts one for a request.
        (application("RUNNING"), False),
    ],
)
def test_only_an_application_that_serves_a_model_hides_one_that_is_away(other: Any, is_away: bool) -> None:
    assert ("beta" in models_away({"model:beta": broken(), "model:beta@2": other})) is is_away
    assert ("beta" in models_away({"model:beta@2": other, "model:beta@3": broken()})) is is_away


def test_the_reason_is_in_the_metrics() -> None:
    found = {metric.name: metric.samples for metric in replica_gauges({}, {"beta": REASON})}
    (sample,) = found["pith_model_away"]
    assert sample.labels == {"model": "beta", "reason": REASON} and sample.value == 1


def test_the_start_goes_on_without_what_may_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter(
        [
            {"ingress": application(RUNNING=1), "model:beta": application("DEPLOYING", STARTING=1)},
            {"ingress": application(RUNNING=1), "model:beta": broken(), "model:alpha": application()},
        ]
    )
    monkeypatch.setattr(lineup, "application_statuses", lambda: next(looks))
    monkeypatch.setattr(lineup, "POLL_S", 0)
    told = Quiet()
    names = ["ingress", "model:alpha", "model:beta"]
    assert wait_until_running(names, told, may_fail=["model:alpha", "model:beta"]) == {"model:beta": REASON}
    assert any("model:beta is away" in line and REASON in line for line in told.said)


def test_the_start_ends_with_what_may_not_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineup, "application_statuses", lambda: {"ingress": broken()})
    with pytest.raises(StartError, match=r"ingress cannot start: models\.checkpoint\.BrokenCheckpoint"):
        wait_until_running(["ingress"], Quiet(), may_fail=["model:beta"])


def test_starts_that_fail_are_made_at_growing_intervals() -> None:
    pauses = [pause_s(failed) for failed in range(20)]
    assert pauses[:AT_ONCE] == [0] * AT_ONCE
    assert pauses == sorted(pauses) and pauses[AT_ONCE] > 0
    assert pauses[-1] == LONGEST_PAUSE_S == pause_s(10**6)


@dataclass
class FakeCluster:
    """Ray's store of keys, and the replicas of `model:a` that live; and the pauses before their starts."""

    store: dict[bytes, bytes] = field(default_factory=dict)
    alive: list[str] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)

    def use(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(internal_kv, "_internal_kv_get", self.store.get)
        patch.setattr(internal_kv, "_internal_kv_put", self._put)
        patch.setattr(internal_kv, "_internal_kv_del", lambda key: self.store.pop(key, None) is not None)
        patch.setattr(internal_kv, "_internal_kv_list", self._listed)
        patch.setattr(ray, "get_actor", self._actor)
        patch.setattr(starting, "own_names", lambda: ("model:a", self.alive[-1]))
        patch.setattr(starting, "pause_s", self._pause_s)

    def _put(self, key: bytes, value: bytes, *, overwrite: bool) -> None:
        self.store[key] = value

    def _listed(self, prefix: bytes) -> list[bytes]:
        return [key for key in self.store if key.startswith(prefix)]

    def _actor(self, name: str, *, namespace: str) -> None:
        if name not in self.alive:
            raise ValueError(name)

    def _pause_s(self, failed: int) -> float:
        self.waited.append(pause_s(failed))
        return 0


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    (cluster := FakeCluster()).use(monkeypatch)
    return cluster


@paced
async def start(end: Awaitable[object]) -> None:
    await end


async def broken_start() -> None:
    raise ValueError


async def test_a_start_waits_as_those_before_it_failed(cluster: FakeCluster) -> None:
    for number in range(AT_ONCE + 1):
        cluster.alive = [f"replica {number}"]
        with pytest.raises(ValueError):
            await start(broken_start())
    assert cluster.waited == [pause_s(failed) for failed in range(AT_ONCE + 1)]
    await start(asyncio.sleep(0))
    assert failed_starts("model:a") == 0 and not cluster._listed(BEGUN_AT)


async def test_a_start_waits_as_those_before_it_were_killed_and_not_as_others_begin(
    cluster: FakeCluster,
) -> None:
    begun = []
    for number in range(AT_ONCE + 2):
        cluster.alive.append(f"replica {number}")
        begun.append(asyncio.create_task(start(asyncio.Event().wait())))
        await eventually(lambda: len(cluster._listed(BEGUN_AT)) == len(begun))
    assert cluster.waited == [0] * len(begun)
    # The processes are gone: nothing of them goes on.
    cluster.alive = ["the next"]
    with pytest.raises(ValueError):
        await start(broken_start())
    assert cluster.waited[-1] == pause_s(AT_ONCE + 2) > 0
    assert failed_starts("model:a") == AT_ONCE + 3 and not cluster._listed(BEGUN_AT)
    for task in begun:
        task.cancel()
    await asyncio.gather(*begun, return_exceptions=True)
