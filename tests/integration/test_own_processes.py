"""Engines that start themselves, where Ray Serve LLM has no part: a fake chat model, and one rerank checkpoint on an
encoder and on vLLM, behind one server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import yaml

from benchmarks.sample_checkpoints import config_of, train_tokenizer
from models.fake_engine import SERVED_TEXT
from tests.integration.running import Server, start_server, stop_server, write_config

TEXTS = [
    "The committee met to discuss the budget.",
    "The plan was not ready.",
    "Das Gesetz wurde nicht verabschiedet.",
]
QUERY = "When is the budget discussed?"


def make_cross_encoder(folder: Path) -> str:
    from transformers import AutoModelForSequenceClassification

    tokenizer = train_tokenizer("bert")
    config = config_of("bert", tokenizer, layers=2, width=64)
    config.num_labels = 1
    torch.manual_seed(3)
    AutoModelForSequenceClassification.from_config(config).save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    return str(folder)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    tmp_path = tmp_path_factory.mktemp("own")
    checkpoint = make_cross_encoder(tmp_path / "cross-encoder")
    path = write_config(tmp_path, ingress_replicas=1)
    given = yaml.safe_load(path.read_text())
    shared = {
        "kind": "rerank",
        "name": "Cross",
        "blurb": "For tests.",
        "checkpoint": checkpoint,
        "context_length": 64,
        "price": {"input_usd_per_mtok": 10},
    }
    environment = {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    }
    given["compression"] = {}
    given["models"] = [
        {**given["models"][0], "engine": {"kind": "fake"}},
        {**shared, "id": "by-encoder", "engine": {"kind": "encoder", "threads": 1}},
        {
            **shared,
            "id": "by-vllm",
            "engine": {"kind": "vllm", "dtype": "float32", "enforce_eager": True},
            "environment": environment,
        },
    ]
    path.write_text(yaml.safe_dump(given))
    server = start_server(path, tmp_path)
    yield server
    stop_server(server)


def test_a_fake_engine_is_served_metered_and_named_at_the_start(own: Server) -> None:
    assert any("WARNING" in line and "fake engine" in line for line in own.lines)
    body = {"messages": [{"role": "user", "content": "hi there"}]}
    with own.client() as http:
        answer = http.post("/v1/chat/completions", json=body).raise_for_status().json()
        assert answer["choices"][0]["message"]["content"] == SERVED_TEXT
        assert answer["usage"]["completion_tokens"] == len(SERVED_TEXT.split())
        streamed = http.post("/v1/chat/completions", json={**body, "stream": True}).text
    assert SERVED_TEXT.split()[-1] in streamed and streamed.endswith("data: [DONE]\n\n")
    # The one core is that of the rerank model on vLLM.
    assert len(own.engine_processes()) == 1


def test_both_engines_give_one_checkpoints_scores_and_bill_the_same_tokens(own: Server) -> None:
    with own.client() as http:
        answers = {}
        for name in ("by-encoder", "by-vllm"):
            body = {"model": name, "text_1": QUERY, "text_2": TEXTS}
            answers[name] = http.post("/openai/v1/score", json=body, timeout=120).raise_for_status().json()
            too_long = http.post("/openai/v1/score", json={**body, "text_2": ["word " * 200]})
            assert (too_long.status_code, too_long.json()["error"]["code"]) == (
                400,
                "context_length_exceeded",
            )
            cut = {"model": name, "query": QUERY, "documents": ["word " * 200]}
            assert len(http.post("/openai/v1/rerank", json=cut).raise_for_status().json()["results"]) == 1
    scores = {name: [item["score"] for item in answer["data"]] for name, answer in answers.items()}
    assert scores["by-vllm"] == pytest.approx(scores["by-encoder"], abs=1e-3)
    assert answers["by-vllm"]["usage"] == answers["by-encoder"]["usage"]
    billed = {answer["service"]["billing"]["request_cost_usd"] for answer in answers.values()}
    assert len(billed) == 1 and billed.pop() > 0
