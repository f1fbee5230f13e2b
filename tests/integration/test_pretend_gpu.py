"""`configs/gpu.yaml`, without two of its models, on eight GPUs that only Ray and vLLM's executor believe in: its
placement groups, vLLM's Ray executor and its worker actors are real, and the workers compute on CPUs."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import psutil
import pytest
import yaml

from serve.cli.status import readings_of
from tests.integration.running import Server, start_server, stop_server, wait_for
from tests.pretend_gpu.configuration import IN_TURNS, ON_DEMAND, with_gpus, write_gpu_config
from tests.pretend_gpu.processes import Found, engine_processes, gone, nothing_is_left_of, shared_by

# Some twenty processes that import vLLM, on two cores.
START_S = 1500
AGAIN_S = 600
pytestmark = pytest.mark.timeout(START_S + AGAIN_S)
# One of a group of two, and the one with a part of a GPU.
GROUP, PART = "gpt-oss-120b", "qwen3-30b-a3b"
WORKERS = {GROUP: 2, PART: 1, ON_DEMAND: 1}
ASKED = {"messages": [{"role": "user", "content": "Tell me about the river."}], "max_tokens": 4}
LONG = {**ASKED, "max_tokens": 1800, "ignore_eos": True, "stream": True}


@pytest.fixture(scope="module")
def gpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    state = tmp_path_factory.mktemp("gpus")
    environment = with_gpus(os.environ, state / "plugin")
    config = write_gpu_config(state)
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


@pytest.mark.parametrize("model", WORKERS)
def test_each_model_answers_from_as_many_worker_actors_as_it_has_gpus(gpus: Server, model: str) -> None:
    reply = ask(gpus, model)
    assert reply.status_code == 200, reply.text
    assert reply.json()["service"]["metering"]["persisted"]
    there = found(gpus, model)
    assert [len(there.replicas), len(there.cores), len(there.workers)] == [1, 1, WORKERS[model]]
    if model != ON_DEMAND:
        return
    # It started on its first request, and leaves nothing when it is idle.
    shared = shared_by(there.all)
    assert shared
    wait_for(lambda: not found(gpus, ON_DEMAND).all, what=f"{ON_DEMAND} is gone", every_s=0.5)
    nothing_is_left_of(shared)


def test_a_model_for_texts_and_a_compressor_answer_from_the_gpu_that_they_share(gpus: Server) -> None:
    with gpus.client() as http:
        vectors = http.post(
            "/openai/v1/embeddings", json={"model": "qwen3-embedding-0.6b", "input": ["a river", "a hill"]}
        )
        assert len(vectors.raise_for_status().json()["data"]) == 2
        text = "The plan was not ready. The committee met to discuss the budget. " * 20
        compressed = http.post(
            "/v1/compress", json={"model": "llmlingua-2-xlmr", "query": "What was ready?", "input": text}
        )
        assert compressed.raise_for_status().json()["output"]


def said(server: Server, model: str) -> str:
    reply = ask(server, model, temperature=0, max_tokens=16)
    assert reply.status_code == 200, reply.text
    return str(reply.json()["choices"][0]["message"]["content"])


def awake(server: Server) -> list[str]:
    """The models that `pith status` shows awake, of those that take turns."""
    return [row["model"] for row in server.pith("status")["models"] if row["is_awake"]]


def test_models_that_take_turns_answer_from_engines_of_one_replica_and_the_same_after_a_sleep(
    gpus: Server,
) -> None:
    there = found(gpus, "+".join(IN_TURNS))
    assert [len(there.replicas), len(there.cores), len(there.workers)] == [1, 2, 2]
    first, second = IN_TURNS
    before = said(gpus, first), said(gpus, second)
    assert awake(gpus) == [second]
    assert (said(gpus, first), said(gpus, second)) == before and before[0] != before[1]


def times_woken(server: Server, model: str) -> float:
    page = httpx.get(f"http://127.0.0.1:{server.ops_port}/metrics", timeout=AGAIN_S).text
    return readings_of(page).of("pith_model_swap_seconds_count", model) or 0


def is_woken_again(server: Server, streamed: str, asked: str, tokens: int) -> bool:
    """Whether a model slept, and woke up for the rest of its stream of so many tokens, while the other was asked."""
    events: list[dict[str, Any]] = []
    body = {**LONG, "max_tokens": tokens, "model": streamed}
    # It is awake when its stream begins, and what is counted is read while nothing runs: that may take seconds.
    assert ask(server, streamed).status_code == 200
    before = times_woken(server, streamed)
    with (
        server.client(timeout_s=AGAIN_S) as http,
        http.stream("POST", "/v1/chat/completions", json=body) as reply,
        ThreadPoolExecutor(1) as other,
    ):
        for line in reply.iter_lines():
            if line.startswith("data: {"):
                events.append(json.loads(line.removeprefix("data: ")))
                if len(events) == 1:
                    answering = other.submit(ask, server, asked)
        assert answering.result(AGAIN_S).status_code == 200
    assert events[-1]["usage"]["completion_tokens"] == tokens
    return times_woken(server, streamed) > before


def test_a_stream_that_is_paused_for_another_models_turn_goes_on_and_is_whole(gpus: Server) -> None:
    first, second = IN_TURNS
    # A busy machine's engine may have made a whole reply before the other request has come to the replica.
    assert any(is_woken_again(gpus, first, second, tokens) for tokens in (1800, 5000, 15000))


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


def test_a_reload_starts_a_changed_engine_beside_the_old_one_which_then_leaves_nothing(gpus: Server) -> None:
    before = found(gpus, PART)
    document = yaml.safe_load(gpus.config.read_text())
    model = next(model for model in document["models"] if model["id"] == PART)
    model["engine"]["max_num_seqs"] = 32
    gpus.config.write_text(yaml.safe_dump(document))
    outcome = gpus.pith("reload", within_s=AGAIN_S)
    assert outcome["started"] == [f"model:{PART}"]
    assert ask(gpus, PART).status_code == 200
    gone(before.all)
    after = found(gpus, PART)
    assert len(after.workers) == 1 and not {*before.all} & {*after.all}


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
