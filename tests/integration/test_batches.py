"""Files and batches by OpenAI's client on the real server: upload, create, poll, read, cancel."""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.types import Batch
from openai.types.chat import ChatCompletion

from tests.integration.running import Server, wait_for

ENDPOINT: Any = "/v1/chat/completions"
TOKENS = 4


@pytest.fixture
def workspace() -> str:
    """Of this test's own."""
    return f"batches-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def client(server: Server, workspace: str) -> Iterator[openai.OpenAI]:
    key = server.new_key(workspace, project=("--requests-per-minute", "1000"))
    with openai.OpenAI(base_url=f"{server.url}/openai/v1", api_key=key, max_retries=0) as client:
        yield client


def requests(count: int, **fields: Any) -> io.BytesIO:
    body = {"model": "pith-mini", "max_tokens": TOKENS, "ignore_eos": True, **fields}
    lines = []
    for number in range(count):
        asked = {**body, "messages": [{"role": "user", "content": f"Tell me about river {number}."}]}
        lines.append({"custom_id": f"river-{number}", "method": "POST", "url": ENDPOINT, "body": asked})
    return io.BytesIO("\n".join(map(json.dumps, lines)).encode())


def ended(client: openai.OpenAI, batch_id: str) -> Batch:
    def looked_at() -> Batch | None:
        found = client.batches.retrieve(batch_id)
        return found if found.status in ("completed", "failed", "cancelled", "expired") else None

    found: Batch = wait_for(looked_at, timeout_s=120, what="the batch ends", every_s=0.2)
    return found


def test_a_batch_is_uploaded_run_and_read(server: Server, client: openai.OpenAI, workspace: str) -> None:
    file = client.files.create(file=("rivers.jsonl", requests(12)), purpose="batch")
    assert (file.filename, file.purpose, file.status) == ("rivers.jsonl", "batch", "processed")
    batch = client.batches.create(
        input_file_id=file.id, endpoint=ENDPOINT, completion_window="24h", metadata={"of": "rivers"}
    )
    done = ended(client, batch.id)
    assert (done.status, done.error_file_id, done.metadata) == ("completed", None, {"of": "rivers"})
    assert done.request_counts is not None and done.request_counts.completed == 12
    assert done.output_file_id is not None
    lines = [json.loads(line) for line in client.files.content(done.output_file_id).text.splitlines()]
    assert [line["custom_id"] for line in lines] == [f"river-{number}" for number in range(12)]
    spent = 0.0
    for line in lines:
        reply = ChatCompletion.model_validate(line["response"]["body"], strict=True)
        assert reply.usage is not None and reply.usage.completion_tokens == TOKENS
        spent += line["response"]["body"]["service"]["billing"]["request_cost_usd"]
    assert done.usage is not None and done.usage.output_tokens == 12 * TOKENS
    assert [one.id for one in client.batches.list()] == [batch.id]
    assert {one.id for one in client.files.list(purpose="batch")} == {file.id}
    rows = server.pith("usage", "--by", "workspace", "--workspace", workspace)
    assert round(sum(float(row["cost_usd"]) for row in rows), 9) == round(spent, 9)
    assert server.pith("reconcile")["clean"]
    assert client.files.delete(file.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(file.id)


def test_a_batch_that_is_cancelled_ends_with_what_was_run(client: openai.OpenAI) -> None:
    file = client.files.create(file=("long.jsonl", requests(400, max_tokens=200)), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint=ENDPOINT, completion_window="24h")
    wait_for(
        lambda: client.batches.retrieve(batch.id).status == "in_progress",
        what="it is in progress",
    )
    with pytest.raises(openai.ConflictError):
        client.files.delete(file.id)
    assert client.batches.cancel(batch.id).status == "cancelling"
    done = ended(client, batch.id)
    assert done.status == "cancelled" and done.request_counts is not None
    assert done.request_counts.completed + done.request_counts.failed == done.request_counts.total == 400
    assert done.request_counts.failed > 0 and done.error_file_id is not None
    last = json.loads(client.files.content(done.error_file_id).text.splitlines()[-1])
    assert (last["custom_id"], last["error"]["code"]) == ("river-399", "batch_cancelled")


def test_an_input_that_is_wrong_names_its_lines(client: openai.OpenAI) -> None:
    file = client.files.create(file=("bad.jsonl", io.BytesIO(b'{"custom_id": "a"\n')), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint=ENDPOINT, completion_window="24h")
    done = ended(client, batch.id)
    assert done.status == "failed" and done.errors is not None and done.errors.data is not None
    assert (done.errors.data[0].line, done.errors.data[0].code) == (1, "invalid_json_line")
