"""Engines that die, hang or are not up yet: a caller hears of it, never waits for ever, and pays for what it got."""

from __future__ import annotations

import json
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import psutil
import pytest

from tests.integration.running import IDLE_S, IDLES, WAIT_S, Server, replica_of, wait_for

RESTART_S = 180
GREEDY = {"messages": [{"role": "user", "content": "Tell me."}], "max_tokens": 3500, "ignore_eos": True}
# A seeded sampler cannot be put where another was: such a chat ends with its engine.
LONG = {**GREEDY, "seed": 1, "temperature": 0.5}
SHORT = {"messages": [{"role": "user", "content": "Tell me."}], "max_tokens": 4}


@pytest.fixture(autouse=True)
def engine_is_up_again(server: Server) -> Iterator[None]:
    """Each fault is followed by a normal answer, and leaves no hold open."""
    yield
    wait_for(
        lambda: answers(server), timeout_s=RESTART_S, what="the default model answers again", every_s=0.5
    )
    wait_for(lambda: open_holds(server) == 0, what="no hold is open")


def answers(server: Server, **fields: Any) -> bool:
    with server.client() as client:
        return client.post("/v1/chat/completions", json={**SHORT, **fields}).status_code == 200


def rows(server: Server, query: str) -> list[sqlite3.Row]:
    with sqlite3.connect(server.state_dir / "pith.db", timeout=120) as database:
        database.row_factory = sqlite3.Row
        return database.execute(query).fetchall()


def open_holds(server: Server) -> int:
    return int(rows(server, "select count(*) as n from holds")[0]["n"])


def usage_event(server: Server, request_id: str) -> sqlite3.Row | None:
    found = [row for row in rows(server, "select * from usage_events") if row["request_id"] == request_id]
    assert len(found) <= 1, f"request {request_id} was charged {len(found)} times"
    return found[0] if found else None


def engine_core(server: Server) -> psutil.Process:
    """The default model's."""
    return wait_for(
        lambda: server.engine_processes("pith-mini"), timeout_s=RESTART_S, what="an engine process runs"
    )[0]


def read_events(
    response: httpx.Response, fault: psutil.Process | None, number: int, after: int
) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    for line in response.iter_lines():
        if line.startswith("data: {"):
            events.append(json.loads(line.removeprefix("data: ")))
        if len(events) == after and fault is not None:
            fault.send_signal(number)
            fault = None
    return events


@pytest.mark.parametrize("victim", ["engine core", pytest.param("replica", marks=pytest.mark.long)])
def test_an_engine_killed_mid_stream_ends_the_stream_with_an_error_and_bills_what_came(
    server: Server, victim: str
) -> None:
    core = engine_core(server)
    process = core if victim == "engine core" else replica_of(core)
    with (
        server.client() as client,
        client.stream("POST", "/v1/chat/completions", json={**LONG, "stream": True}) as reply,
    ):
        assert reply.status_code == 200
        events = read_events(reply, process, signal.SIGKILL, after=20)
    assert events[-1]["error"]["type"] == "server_error"
    assert isinstance(events[-1]["detail"], str)
    seen = sum(1 for event in events if event.get("choices") and event["choices"][0]["delta"].get("content"))
    event = usage_event(server, reply.headers["x-request-id"])
    assert event is not None
    assert event["outcome"] == "failed"
    assert seen <= event["completion_tokens"] < LONG["max_tokens"]
    assert event["cost_nano_usd"] == event["prompt_tokens"] * 100 + event["completion_tokens"] * 400


@pytest.mark.parametrize("victim", [pytest.param("engine core", marks=pytest.mark.long), "replica"])
def test_a_greedy_stream_goes_on_after_its_engine_was_killed_and_is_billed_once(
    server: Server, victim: str
) -> None:
    asked = {**GREEDY, "max_tokens": 300, "stream": True}
    whole = read_stream(server, asked, None)
    core = engine_core(server)
    cut = read_stream(server, asked, core if victim == "engine core" else replica_of(core))
    assert cut == whole


def read_stream(server: Server, asked: dict[str, Any], victim: psutil.Process | None) -> tuple[str, int]:
    """Text and tokens of a stream under which a process was killed."""
    with (
        server.client(timeout_s=RESTART_S) as client,
        client.stream("POST", "/v1/chat/completions", json=asked) as reply,
    ):
        events = read_events(reply, victim, signal.SIGKILL, after=5)
    assert victim is None or not victim.is_running() or victim.status() == psutil.STATUS_ZOMBIE
    assert "error" not in events[-1], events[-1]
    deltas = [event["choices"][0]["delta"] for event in events if event["choices"]]
    event = usage_event(server, reply.headers["x-request-id"])
    assert event is not None and event["completion_tokens"] == events[-1]["usage"]["completion_tokens"]
    return "".join(delta.get("content") or "" for delta in deltas), event["completion_tokens"]


def test_an_engine_killed_mid_request_answers_502_and_bills_nothing(server: Server) -> None:
    core = engine_core(server)
    replies: list[httpx.Response] = []

    def ask() -> None:
        with server.client() as client:
            replies.append(client.post("/v1/chat/completions", json=LONG))

    asking = threading.Thread(target=ask)
    asking.start()
    wait_for(lambda: open_holds(server), what="the request is held")
    core.kill()
    asking.join(WAIT_S)
    assert replies, "the request hung"
    assert replies[0].status_code in (502, 503)
    assert replies[0].json()["detail"]
    assert usage_event(server, replies[0].headers["x-request-id"]) is None


def test_requests_wait_while_a_killed_engine_is_started_again_in_the_same_replica(server: Server) -> None:
    core = engine_core(server)
    replica = replica_of(core)
    core.kill()
    wait_for(lambda: core not in server.engine_processes(), what="the core has ended")
    deadline = time.monotonic() + RESTART_S
    statuses = []
    with server.client(timeout_s=RESTART_S) as client:
        while not statuses or (statuses[-1] != 200 and time.monotonic() < deadline):
            reply = client.post("/v1/chat/completions", json=SHORT)
            statuses.append(reply.status_code)
            if reply.status_code == 503:
                assert int(reply.headers["retry-after"]) >= 1
    # The first may have reached the dead engine before anyone knew.
    assert statuses[-1] == 200 and set(statuses[1:]) <= {200, 503}
    again = engine_core(server)
    assert again != core and replica_of(again) == replica


def test_an_engine_that_hangs_is_given_up(server: Server) -> None:
    core = engine_core(server)
    try:
        with (
            server.client() as client,
            client.stream("POST", "/v1/chat/completions", json={**LONG, "stream": True}) as reply,
        ):
            events = read_events(reply, core, signal.SIGSTOP, after=20)
    finally:
        core.send_signal(signal.SIGCONT)
    assert "no token from the engine" in events[-1]["detail"]


def test_a_model_on_demand_is_waited_for_up_to_the_bound_then_503_and_goes_idle_again(server: Server) -> None:
    model = IDLES
    first = _ask(server, model)
    assert first.status_code == 503, (
        "the first request cannot find an engine that takes longer than the bound"
    )
    assert int(first.headers["retry-after"]) >= 1
    assert model in first.json()["detail"]
    wait_for(lambda: _ask(server, model).status_code == 200, timeout_s=RESTART_S, what=f"{model} has started")
    (engine,) = server.engine_processes(model)
    # Requests go past Ray's handles, and autoscaling must see them all the same.
    busy_until = time.monotonic() + 1.5 * IDLE_S
    while time.monotonic() < busy_until:
        assert _ask(server, model, max_tokens=1000, ignore_eos=True).status_code == 200
    assert server.engine_processes(model) == [engine], "scaled away under load"
    wait_for(lambda: not server.engine_processes(model), what=f"{model} is idle again", every_s=0.5)


def _ask(server: Server, model: str, **fields: Any) -> httpx.Response:
    with server.client(timeout_s=120) as client:
        return client.post("/v1/chat/completions", json={**SHORT, "model": model, **fields})
