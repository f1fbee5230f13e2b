"""What a chat request may take of a limit and of a workspace's money, and when its prompt is counted for that."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from billing.caller import ProjectLimits
from models.engine import PromptBound
from serve.http.auth import RECHECK_AFTER_S
from tests.serve.served import (
    INPUT_NANO_USD,
    OUTPUT_NANO_USD,
    Client,
    Served,
    eventually,
    serving,
    settings_document,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")
STREAMS = pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
CONTEXT = 4096
# Few tokens of many bytes: a word is one to the fake engine, and a byte to its bound.
LONG_WORDS = [{"role": "user", "content": " ".join(["incomprehensibilities"] * 40)}]
LONG_WORDS_TOKENS = 41


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    async with serving(tmp_path_factory.mktemp("served"), server={"max_body_bytes": 65_536}) as service:
        yield service


async def held_while(served: Served, client: Client) -> int:
    """What is held for a request while the engine works on it."""
    held: list[int] = []

    async def look(seconds: float) -> None:
        if not held:
            held.append((await served.accounts.find_workspace(served.workspace)).held_nano_usd)

    served.engine.sleep = look
    assert (await client.run()).status == 200
    return held[0]


async def test_of_a_plain_prompt_its_bytes_are_held_and_nothing_is_counted(served: Served) -> None:
    served.engine.bound = PromptBound(per_byte=3, per_message=50, per_part=0, fixed=20)
    held = await held_while(served, served.chat(max_tokens=6))
    assert held == INPUT_NANO_USD * (3 * len("hi") + 50 + 20) + OUTPUT_NANO_USD * 6
    assert served.engine.counted == []


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": [{"role": "user", "content": "hi", "name": "Ann"}]},
        {"messages": [{"role": "assistant", "content": "hi", "reasoning_content": "hm"}]},
    ],
    ids=["a field that a template may print", "reasoning"],
)
async def test_of_what_is_more_than_roles_and_texts_all_that_fits_the_model_is_held(
    served: Served, fields: dict[str, Any]
) -> None:
    held = await held_while(served, served.chat(max_tokens=6, **fields))
    assert held == INPUT_NANO_USD * CONTEXT + OUTPUT_NANO_USD * 6
    assert served.engine.counted == []


async def test_of_a_model_of_which_nothing_is_proven_all_that_fits_it_is_held(served: Served) -> None:
    served.engine.bound = None
    held = await held_while(served, served.chat(max_tokens=6))
    assert held == INPUT_NANO_USD * CONTEXT + OUTPUT_NANO_USD * 6


@STREAMS
async def test_an_engine_that_counts_more_than_was_held_is_our_fault_and_costs_nothing(
    served: Served, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    served.engine.prompt_tokens = 2 + len("hi") + 100
    client = await served.chat(stream=stream).run()
    assert (client.status, client.json()["error"]["code"]) == (502, "engine_failed")
    assert await served.events() == []
    assert [record.levelno for record in caplog.records].count(logging.CRITICAL) == 1
    assert served.registry.get_sample_value("pith_chat_bound_exceeded_total", {"model": "alpha"}) >= 1
    await served.assert_nothing_is_left_open()


async def test_a_prompt_is_counted_before_a_limit_refuses_its_bytes(served: Served) -> None:
    limit = 3 * (LONG_WORDS_TOKENS + 6)
    key = await served.new_key(limits=ProjectLimits(tokens_per_minute=limit))
    assert len(LONG_WORDS[0]["content"]) > limit
    for _ in range(3):
        assert (await served.chat(key=key, messages=LONG_WORDS).run()).status == 200
    refused = await served.chat(key=key, messages=LONG_WORDS).run()
    assert refused.status == 429 and "never" not in refused.json()["detail"]
    # No room was left for one token, so the last one was not even counted.
    assert len(served.engine.counted) == 3


async def test_a_count_serves_the_limit_and_the_hold(served: Served) -> None:
    cost = LONG_WORDS_TOKENS * INPUT_NANO_USD + 6 * OUTPUT_NANO_USD
    limits = ProjectLimits(tokens_per_minute=LONG_WORDS_TOKENS + 6)
    key = await served.new_key("twice", limits=limits, spend_limit_nano_usd=cost)
    assert (await served.chat(key=key, messages=LONG_WORDS).run()).status == 200
    assert len(served.engine.counted) == 1


@pytest.mark.parametrize("max_tokens", [6, 600], ids=["by its prompt", "by what it asks for"])
async def test_a_request_that_can_never_fit_its_limit_is_told_so(served: Served, max_tokens: int) -> None:
    key = await served.new_key(limits=ProjectLimits(tokens_per_minute=40))
    refused = await served.chat(key=key, messages=LONG_WORDS, max_tokens=max_tokens).run()
    assert refused.status == 429
    tokens = LONG_WORDS_TOKENS + 6 if max_tokens == 6 else 601
    assert f"may use up to {tokens}" in refused.json()["detail"]
    assert "always be refused" in refused.json()["detail"]
    assert len(served.engine.counted) == (max_tokens == 6)


async def test_one_project_has_one_prompt_counted_at_a_time(served: Served) -> None:
    key = await served.new_key(limits=ProjectLimits(tokens_per_minute=LONG_WORDS_TOKENS + 6))
    served.engine.answers = False
    running = [served.chat(key=key, messages=LONG_WORDS).start() for _ in range(5)]
    await eventually(lambda: served.engine.counted, "the first prompt is being counted")
    for _ in range(200):
        await asyncio.sleep(0)
    assert len(served.engine.counted) == 1
    for each in running:
        each.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    await served.assert_nothing_is_left_open()


def without_limit(served: Served, words: int, **fields: Any) -> Client:
    """A request that says nothing of `max_tokens`."""
    client = served.chat(messages=[{"role": "user", "content": "w " * words}], **fields)
    body = json.loads(client.pieces[0])
    del body["max_tokens"]
    client.pieces = (json.dumps(body).encode(),)
    return client


@STREAMS
@pytest.mark.parametrize("left", [1, 100])
async def test_without_a_limit_of_its_own_a_reply_gets_what_the_prompt_leaves(
    served: Served, stream: bool, left: int
) -> None:
    served.engine.context_length = CONTEXT
    # The fake engine counts each word, and two more.
    client = await without_limit(served, CONTEXT - 2 - left, stream=stream, ignore_eos=True).run()
    assert client.status == 200, client.body
    usage = (client.events()[-2] if stream else client.json())["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (CONTEXT - left, left)


async def test_what_was_asked_for_and_does_not_fit_is_refused_and_named(served: Served) -> None:
    served.engine.context_length = CONTEXT
    words = "w " * (CONTEXT - 2 - 100)
    client = await served.chat(messages=[{"role": "user", "content": words}], max_tokens=101).run()
    assert (client.status, client.json()["error"]["param"]) == (422, "max_tokens")
    assert await served.events() == []


async def test_the_hold_of_a_default_is_what_the_prompt_leaves(served: Served) -> None:
    served.engine.context_length = CONTEXT
    cost = INPUT_NANO_USD * (CONTEXT - 5) + OUTPUT_NANO_USD * 5
    key = await served.new_key("left", spend_limit_nano_usd=cost)
    client = await without_limit(served, CONTEXT - 2 - 5, ignore_eos=True, key=key).run()
    assert client.status == 200, client.body
    workspace = await served.accounts.find_workspace("left")
    assert (workspace.posted_nano_usd, workspace.held_nano_usd) == (cost, 0)


class SlowBody(Client):
    """A client whose last piece of the body comes when the test says so."""

    def __init__(self, of: Client) -> None:
        super().__init__(of.app, of.path, of.method, of.headers, (of.pieces[0][:5], of.pieces[0][5:]))
        self.may_go_on = asyncio.Event()

    async def receive(self) -> Any:
        if self.read == 1:
            await self.may_go_on.wait()
        return await super().receive()


async def test_a_key_that_was_revoked_while_the_body_came_is_refused(tmp_path: Path) -> None:
    billing = {**settings_document(tmp_path)["billing"], "key_cache_s": 0}
    async with serving(tmp_path, billing=billing) as service:
        served = await service.renewed()
        client = SlowBody(served.chat())
        running = client.start()
        await eventually(lambda: client.read == 1, "the body is being read")
        await served.accounts.keys.revoke(served.key, now=datetime.now(UTC))
        # Longer than any body that is sent at once.
        await asyncio.sleep(2 * RECHECK_AFTER_S)
        client.may_go_on.set()
        await running
        assert (client.status, client.json()["error"]["code"]) == (403, "invalid_api_key")
        assert served.engine.requests == []
