"""Compression over HTTP on the real server: the models that Ray runs, their receipts, and the project's usage log."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import ExitStack

import httpx
import psutil
import pytest

from tests.integration.running import Server, command_line, wait_for

START_S = 180
QUERY = "When was the bridge built?"
CONTEXT = " ".join(
    [
        "The town lies where two rivers meet, and its market is held on Sundays.",
        "The old bridge was built in 1871 by local masons, who were paid in grain.",
        "It rains often in spring; visitors are advised to bring a coat.",
        "The school teaches music, and its choir has sung abroad.",
        "A mill stood by the water until a fire, of which nobody knows the cause.",
        "Trains stop here twice a day on their way to the coast.",
    ]
)
BODY = {"query": QUERY, "input": CONTEXT, "compression": {"target_ratio": 0.4}}


def assert_is_a_compression(reply: dict[str, object], model: str) -> None:
    assert reply["object"] == "compression"
    assert str(reply["id"]).startswith("cmp_")
    assert reply["model"] == model
    receipt = reply["receipt"]
    assert isinstance(receipt, dict)
    assert receipt["compression_ratio"] <= receipt["target_ratio"] == 0.4
    assert receipt["tokens_saved"] == receipt["original_tokens"] - receipt["output_tokens"] > 0
    assert receipt["tokenizer"] == "pith-mini"
    assert "1871" in str(reply["output"])


def test_a_project_gets_the_part_that_matters_and_a_receipt_that_is_on_record(
    http: httpx.Client, server: Server
) -> None:
    reply = http.post("/v1/compress", json=BODY)
    assert reply.status_code == 200, reply.text
    assert_is_a_compression(reply.json(), "pith-lexical")
    assert reply.headers["x-service-metering-status"] == "persisted"
    with sqlite3.connect(server.state_dir / "pith.db") as ledger:
        found = ledger.execute(
            "select receipt from usage_events where request_id = ?", (reply.headers["x-request-id"],)
        ).fetchall()
    assert [json.loads(row[0])["output_tokens"] for row in found] == [
        reply.json()["receipt"]["output_tokens"]
    ]


def test_the_demo_needs_no_key_and_states_its_cap(server: Server) -> None:
    reply = httpx.post(f"{server.url}/v1/demo/compress", json=BODY)
    assert reply.status_code == 200, reply.text
    assert_is_a_compression(reply.json(), "pith-lexical")
    too_long = httpx.post(f"{server.url}/v1/demo/compress", json={**BODY, "input": "x" * 20_001})
    assert too_long.status_code == 422
    assert "20,000" in too_long.text.replace("20000", "20,000")


def test_a_bad_item_of_a_batch_fails_alone(http: httpx.Client) -> None:
    items = [{"id": "good", **BODY}, {"id": "bad", **BODY, "input": ""}]
    reply = http.post("/v1/batch/compress", json={"items": items})
    assert reply.status_code == 200, reply.text
    assert [result["status"] for result in reply.json()["results"]] == ["ok", "error"]


@pytest.mark.parametrize(
    ("change", "loc"),
    [
        ({"model": "none-such"}, ["body", "model"]),
        ({"compression": {"target_ratio": 0}}, ["body", "compression", "target_ratio"]),
        ({"compression": {"target_ratio": 1.5}}, ["body", "compression", "target_ratio"]),
        ({"input": ""}, ["body", "input"]),
        ({"input": 5}, ["body", "input"]),
    ],
)
def test_what_cannot_be_compressed_is_refused_by_name(
    http: httpx.Client, change: dict[str, object], loc: list[str]
) -> None:
    reply = http.post("/v1/compress", json={**BODY, **change})
    assert reply.status_code == 422, reply.text
    assert reply.json()["detail"][0]["loc"] == loc


def test_an_original_is_given_back_by_every_http_process_and_lies_in_none_of_its_files(
    http: httpx.Client, server: Server
) -> None:
    options = {"target_ratio": 0.4, "retain_s": 60}
    kept = http.post("/v1/compress", json={**BODY, "compression": options}).json()
    assert kept["retained_until"] > kept["created"]
    with ExitStack() as stack:
        # Open at the same time, so that both processes have some of them.
        clients = [stack.enter_context(server.client()) for _ in range(16)]
        for client in clients:
            found = client.get(f"/v1/compress/{kept['id']}/original", params={"start": 4, "end": 8})
            assert (found.status_code, found.json()["text"]) == (200, CONTEXT[4:8]), found.text
    assert http.get(f"/v1/compress/{kept['id']}/original").json()["text"] == CONTEXT
    files = [path for path in server.state_dir.rglob("*.db*") if path.is_file()]
    assert files and not [path for path in files if b"local masons" in path.read_bytes()]
    metrics = httpx.get(f"http://127.0.0.1:{server.ops_port}/metrics").text
    assert re.search(r'pith_originals_kept_total\{outcome="kept"\} [1-9]', metrics)


def test_what_was_left_out_of_a_prompt_can_be_read_again(http: httpx.Client) -> None:
    text = CONTEXT + " " + " ".join(f"House {number} has a red door and a garden." for number in range(40))
    part = {"type": "text", "text": text, "compress": True}
    body = {
        "messages": [{"role": "user", "content": [part, {"type": "text", "text": QUERY}]}],
        "compression": {"target_ratio": 0.3, "retain_s": 60},
        "max_tokens": 4,
    }
    reply = http.post("/v1/chat/completions", json=body)
    assert reply.headers["x-service-compression"] == "applied", reply.text
    (block,) = reply.json()["service"]["compression"]["blocks"]
    assert block["retained_until"] > reply.json()["created"]
    assert http.get(f"/v1/compress/{block['id']}/original").json()["text"] == text


def processes(server: Server) -> set[int]:
    """The processes that compress, and those that they are forked from."""
    found = psutil.Process(server.pid).children(recursive=True)
    return {each.pid for each in found if "compression.workers.fork_server" in command_line(each)}


def test_a_client_that_leaves_ends_the_work(server: Server) -> None:
    before = processes(server)
    assert len(before) >= 2
    text = "\n\n".join(f"In {year} the committee chose harbour {year % 7}." for year in range(40_000))
    request = {"query": QUERY, "input": text[:2_000_000]}
    with server.client(timeout_s=0.5) as client, pytest.raises(httpx.ReadTimeout):
        client.post("/v1/compress", json=request)
    wait_for(lambda: processes(server) <= before, what="the large input's process is gone")
    with server.client() as client:
        assert client.post("/v1/compress", json=BODY).status_code == 200
    metrics = httpx.get(f"http://127.0.0.1:{server.ops_port}/metrics").text
    assert re.search(r'workers_replaced_total\{model="pith-lexical",reason="cancelled"\} [1-9]', metrics)
    assert re.search(r'jobs_running\{model="pith-lexical"\} 0', metrics)


def test_a_replica_that_is_killed_leaves_no_process_behind_and_is_replaced(server: Server) -> None:
    before = processes(server)
    (replica,) = {psutil.Process(pid).ppid() for pid in before} - before
    psutil.Process(replica).kill()
    wait_for(lambda: not processes(server) & before, what="its processes are gone")

    def answers() -> bool:
        with server.client() as client:
            return client.post("/v1/compress", json=BODY).status_code == 200

    wait_for(answers, timeout_s=START_S, what="another replica answers", every_s=0.5)


# `test_faults` has a model of chats that starts on its first request.
@pytest.mark.long
def test_a_model_on_demand_drops_words_of_prose(http: httpx.Client) -> None:
    body = {**BODY, "model": "pith-words"}

    def answer() -> httpx.Response | None:
        reply = http.post("/v1/compress", json=body)
        return reply if reply.status_code == 200 else None

    reply = wait_for(answer, timeout_s=START_S, what="pith-words has started", every_s=0.5)
    receipt = reply.json()["receipt"]
    assert receipt["compression_ratio"] <= 0.4
    # A mark may stay where the word before it went.
    assert set(re.findall(r"\w+", reply.json()["output"])) <= set(re.findall(r"\w+", CONTEXT))
