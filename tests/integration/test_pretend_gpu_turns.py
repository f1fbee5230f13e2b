"""More of `configs/gpu.yaml` on pretended GPUs than `test_pretend_gpu` has: models that share a GPU, one that starts on
its first request, models that take turns, and a reload."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
import yaml

from serve.cli.status import readings_of
from tests.integration.running import Server, start_server, stop_server, wait_for
from tests.integration.test_pretend_gpu import AGAIN_S, LONG, START_S, ask, found
from tests.pretend_gpu.configuration import IN_TURNS, ON_DEMAND, PART, TEXTS, with_gpus, write_gpu_config
from tests.pretend_gpu.processes import gone, nothing_is_left_of, shared_by

pytestmark = pytest.mark.timeout(START_S + AGAIN_S)


@pytest.fixture(scope="module")
def gpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    state = tmp_path_factory.mktemp("gpus")
    environment = with_gpus(os.environ, state / "plugin")
    config = write_gpu_config(state, [PART, TEXTS, ON_DEMAND, *IN_TURNS])
    server = start_server(config, state, environment=environment, within_s=START_S)
    try:
        yield server
    finally:
        stop_server(server)


def test_a_model_that_started_on_its_first_request_leaves_nothing_when_it_is_idle(gpus: Server) -> None:
    assert ask(gpus, ON_DEMAND).status_code == 200
    there = found(gpus, ON_DEMAND)
    assert [len(there.replicas), len(there.cores), len(there.workers)] == [1, 1, 1]
    shared = shared_by(there.all)
    assert shared
    wait_for(lambda: not found(gpus, ON_DEMAND).all, what=f"{ON_DEMAND} is gone", every_s=0.5)
    nothing_is_left_of(shared)


def test_a_model_for_texts_and_a_compressor_answer_from_the_gpu_that_they_share(gpus: Server) -> None:
    with gpus.client() as http:
        vectors = http.post("/openai/v1/embeddings", json={"model": TEXTS, "input": ["a river", "a hill"]})
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


def test_a_reload_starts_a_changed_engine_beside_the_old_one_which_then_leaves_nothing(gpus: Server) -> None:
    assert ask(gpus, PART).status_code == 200
    before = found(gpus, PART)
    assert [len(before.replicas), len(before.cores), len(before.workers)] == [1, 1, 1]
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
