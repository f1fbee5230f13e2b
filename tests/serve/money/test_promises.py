"""Promises in replies of projects that ask for them: of the very record that the ledger has, signed as the log is."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import select

from billing.caller import ProjectLimits
from billing.store.schema import usage_events
from billing.transparency import notes
from billing.transparency.leaves import digest, leaf
from serve.money.ledger_setup import read_pepper
from tests.serve.batches.uploading import chat_line, ended, jsonl, lines_of, made
from tests.serve.served import Client, Served, at_rest, eventually, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    async with serving(tmp_path_factory.mktemp("served")) as served:
        yield served


@pytest_asyncio.fixture(loop_scope="module")
async def served(module_served: Served) -> Served:
    found = await module_served.renewed()
    await found.accounts.change_project(f"{found.workspace}/project", {"proof": True, "max_in_flight": None})
    return found


async def record_of(served: Served, request_id: str) -> str:
    await at_rest()
    statement = select(usage_events).where(usage_events.c.request_id == request_id)
    return leaf((await served.database.read(lambda c: c.execute(statement).one()))._mapping).record


def promised(served: Served, proof: Any) -> str:
    """The record, once its note was found to be the log's of it."""
    assert set(proof) == {"record", "note"}
    signer = notes.signer(read_pepper(served.settings.state_dir))
    expected = signer.receipt(digest(proof["record"]))
    assert proof["note"] == expected
    assert notes.opened(proof["note"], signer.verifier).startswith(f"{signer.origin}{notes.RECEIPT}\n")
    return str(proof["record"])


def service_of(client: Client) -> Any:
    if client.reply_headers["content-type"].startswith("application/json"):
        return client.json()["service"]
    told = [line for line in client.body.decode().splitlines() if '"service"' in line]
    return json.loads(told[-1].removeprefix("data: "))["service"]


ANTHROPIC = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 6}
RESPONSE = {"input": "hi", "max_output_tokens": 6}
USAGE = {"stream_options": {"include_usage": True}}
ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "the contract's": ("/v1/chat/completions", ANTHROPIC),
    "a stream": ("/v1/chat/completions", {**ANTHROPIC, "stream": True}),
    "openai": ("/openai/v1/chat/completions", ANTHROPIC),
    "openai's stream": ("/openai/v1/chat/completions", {**ANTHROPIC, "stream": True, **USAGE}),
    "a completion": ("/openai/v1/completions", {"prompt": "hi"}),
    "a message": ("/anthropic/v1/messages", {**ANTHROPIC, "model": "alpha"}),
    "a message's stream": ("/anthropic/v1/messages", {**ANTHROPIC, "model": "alpha", "stream": True}),
    "a response": ("/openai/v1/responses", RESPONSE),
}


@pytest.mark.parametrize("kind", ASKED)
async def test_each_reply_promises_what_the_ledger_has(served: Served, kind: str) -> None:
    client = await served.post(*ASKED[kind]).run()
    assert client.status == 200, client.body
    found = promised(served, service_of(client)["metering"]["proof"])
    assert found == await record_of(served, json.loads(found)["request_id"])
    assert len(json.loads(found)["tokens_sha256"]) == 64


async def test_the_line_of_a_batch_promises_what_the_ledger_has(served: Served) -> None:
    batch = await ended(served, await made(served, jsonl([chat_line("a"), chat_line("b")])))
    lines = await lines_of(served, batch.output_file_id)
    assert len(lines) == 2
    for line in lines:
        found = promised(served, line["response"]["body"]["service"]["metering"]["proof"])
        assert found == await record_of(served, line["response"]["request_id"])
        assert json.loads(found)["route"] == "batch:chat"


async def test_a_reply_whose_usage_went_to_the_spool_promises_what_is_replayed(served: Served) -> None:
    held = served.chat(stream=True, request_id="spooled")
    served.engine.token_s = 0.01
    running = held.start()
    await eventually(lambda: held.body)
    served.database.is_down = True
    await running
    served.database.is_down = False
    metering = service_of(held)["metering"]
    assert metering["status"] == "degraded"
    record = promised(served, metering["proof"])
    assert (await served.ledger.replay_spool()).posted == 1
    assert await record_of(served, "spooled") == record


async def test_without_the_setting_a_reply_is_the_contracts_to_the_letter(served: Served) -> None:
    other = await served.new_key(limits=ProjectLimits())
    metering = (await served.chat(key=other).run()).json()["service"]["metering"]
    assert metering == {"persisted": True, "status": "persisted"}


async def test_an_unmetered_project_is_promised_nothing(served: Served) -> None:
    name = "unmetered"
    key = await served.new_key(name, metered=False)
    await served.accounts.change_project(f"{name}/project", {"proof": True})
    metering = (await served.chat(key=key).run()).json()["service"]["metering"]
    assert metering == {"persisted": False, "status": "not_applicable"}
