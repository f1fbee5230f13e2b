"""`configs/gpu.yaml`, with one of its models, on eight GPUs that only Ray and vLLM's executor believe in: its
placement groups, vLLM's Ray executor and its worker actors are real, and the workers compute on CPUs."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import httpx
import psutil
import pytest

from tests.integration.running import Server, start_server, stop_server, wait_for
from tests.pretend_gpu.configuration import GROUP, with_gpus, write_gpu_config
from tests.pretend_gpu.processes import Found, engine_processes, gone, shared_by

# Processes that import vLLM, on two cores.
START_S = 1500
AGAIN_S = 600
pytestmark = pytest.mark.timeout(START_S + AGAIN_S)
ASKED = {"messages": [{"role": "user", "content": "Tell me about the river."}], "max_tokens": 4}
LONG = {**ASKED, "max_tokens": 1800, "ignore_eos": True, "stream": True}


@pytest.fixture(scope="module")
def gpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    state = tmp_path_factory.mktemp("gpus")
    environment = with_gpus(os.environ, state / "plugin")
    config = write_gpu_config(state, [GROUP])
    server = start_server(config, state, environment=environment, within_s=START_S)
    try:
        yield server
    finally:
        stop_server(server)


def ask(server: Server, model: str, **fields: Any) -> httpx.Response:
    with server.client(timeout_s=AGAIN_S) as http:
        return http.post("/v1/chat/completions", json={**ASKED, "model": model, **fields})


def found(server: Server, model: str) -> Found:
    return engine_processes(psutil.Process(server.pid), model)


def answers_again(server: Server, model: str) -> Found:
    """Its processes once it does."""
    wait_for(
        lambda: ask(server, model).status_code == 200, timeout_s=AGAIN_S, what=f"{model} answers", every_s=0.5
    )
    return found(server, model)


def test_a_model_answers_from_as_many_worker_actors_as_it_has_gpus(gpus: Server) -> None:
    reply = ask(gpus, GROUP)
    assert reply.status_code == 200, reply.text
    assert reply.json()["service"]["metering"]["persisted"]
    there = found(gpus, GROUP)
    assert [len(there.replicas), len(there.cores), len(there.workers)] == [1, 1, 2]


def events_until_killed(server: Server, worker: psutil.Process) -> list[dict[str, Any]]:
    """Events of a stream, whose first has the worker killed."""
    events: list[dict[str, Any]] = []
    with (
        server.client(timeout_s=AGAIN_S) as http,
        http.stream("POST", "/v1/chat/completions", json={**LONG, "model": GROUP}) as reply,
    ):
        for line in reply.iter_lines():
            if line.startswith("data: {"):
                events.append(json.loads(line.removeprefix("data: ")))
                if len(events) == 1:
                    worker.send_signal(signal.SIGKILL)
    return events


# `test_faults` kills the engines of the session's server.
@pytest.mark.long
def test_a_worker_killed_under_a_request_ends_it_with_an_error_and_its_engine_is_replaced(
    gpus: Server,
) -> None:
    # A busy machine may have made the whole reply before this program gets to read its beginning.
    for _ in range(3):
        before = found(gpus, GROUP)
        last = events_until_killed(gpus, before.workers[1])[-1]
        after = answers_again(gpus, GROUP)
        assert len(after.workers) == 2 and not {*before.all} & {*after.all}
        gone(before.all)
        if "error" in last:
            break
    assert last["error"]["type"] == "server_error"


def test_ctrl_c_leaves_no_process_and_nothing_that_they_shared(gpus: Server) -> None:
    family = psutil.Process(gpus.pid).children(recursive=True)
    folder = gpus.run_folder
    shared = shared_by(family)
    assert shared
    stop_server(gpus)
    assert gpus.process is not None and gpus.process.returncode == 0
    assert not [process for process in family if process.is_running()]
    assert not shared & {*os.listdir("/dev/shm")}
    assert not folder.exists()
