"""Compression inside chat: what the engine is sent, what the reply says of it, and what happens when it fails."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from billing.accounts.accounts import Accounts
from billing.accounts.key_cache import KeyCacheTimes
from billing.caller import ProjectLimits
from compression.pipeline.errors import CompressorFailed
from models.errors import EngineFailed
from tests.serve.compressing import Compressing, compressing
from tests.serve.served import Client

PASSAGES = "\n\n".join(
    f"Item {i} has a price of {i * 7} dollars and colour number {i % 5}." for i in range(60)
)
QUESTION = "What is the price of item 17?"
FREE = {"target_ratio": 0.3, "model": "free"}
CALL = {"id": "c1", "type": "function", "function": {"name": "items", "arguments": '{"about": "item 17"}'}}
HEADER = "x-service-compression"


def asked(text: str = PASSAGES, mark: Any = True) -> list[dict[str, Any]]:
    passages = {"type": "text", "text": text} | ({} if mark is None else {"compress": mark})
    return [{"role": "user", "content": [passages, {"type": "text", "text": QUESTION}]}]


def agent(result: str = PASSAGES) -> list[dict[str, Any]]:
    return [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": result},
    ]


pytestmark = pytest.mark.asyncio(loop_scope="module")


def sent(service: Compressing) -> list[dict[str, Any]]:
    return [dict(message) for message in service.engine.requests[-1].messages]


async def test_the_engine_gets_what_matters_of_a_marked_part(service: Compressing) -> None:
    reply = await service.chat(asked(), compression=FREE).run()
    passages, question = (part["text"] for part in sent(service)[0]["content"])
    assert "Item 17 has a price of 119 dollars" in passages
    assert len(passages) < 0.4 * len(PASSAGES)
    assert question == QUESTION
    assert reply.reply_headers[HEADER] == "applied"


async def test_the_reply_says_what_was_saved_as_the_engine_counts_it(service: Compressing) -> None:
    whole = (await service.chat(asked()[:], compression=False).run()).json()
    reply = (await service.chat(asked(), compression=FREE).run()).json()
    said = reply["service"]["compression"]
    assert said["original_tokens"] == whole["usage"]["prompt_tokens"]
    assert said["sent_tokens"] == reply["usage"]["prompt_tokens"]
    assert said["tokens_saved"] == said["original_tokens"] - said["sent_tokens"] > 0
    costs = [each["service"]["billing"]["request_cost_usd"] for each in (whole, reply)]
    assert said["saved_usd"] == pytest.approx(costs[0] - costs[1])
    assert said["net_usd"] == said["saved_usd"]
    (block,) = said["blocks"]
    assert (block["message"], block["part"], block["compressed"]) == (0, 0, True)
    assert block["receipt"]["compression_ratio"] <= 0.3
    assert "risk_flags" in block["receipt"]


async def test_a_stream_says_it_in_its_last_event(service: Compressing) -> None:
    reply = await service.chat(asked(), compression=FREE, stream=True).run()
    last = reply.events()[-2]
    assert last["service"]["compression"]["status"] == "applied"
    assert reply.reply_headers[HEADER] == "applied"


async def test_without_being_asked_nothing_changes(service: Compressing) -> None:
    reply = await service.chat(agent()).run()
    assert sent(service)[2]["content"] == PASSAGES
    assert reply.reply_headers[HEADER] == "off"
    assert "compression" not in reply.json()["service"]


async def test_a_mark_alone_asks_for_that_part_and_for_nothing_else(service: Compressing) -> None:
    reply = await service.chat([*agent(), *asked()]).run()
    blocks = reply.json()["service"]["compression"]["blocks"]
    assert [(block["message"], block["part"]) for block in blocks] == [(3, 0)]


async def test_a_project_s_default_serves_clients_that_know_nothing_of_it(service: Compressing) -> None:
    await service.set_default(**FREE)
    reply = await service.chat(agent()).run()
    assert reply.json()["service"]["compression"]["status"] == "applied"
    assert len(sent(service)[2]["content"]) < 0.4 * len(PASSAGES)


async def test_a_default_that_another_process_sets_is_served_within_the_key_caches_time(
    service: Compressing,
) -> None:
    """As `pith project set` does it, beside a running server."""
    elsewhere, project = Accounts(service.database, pepper=b"p" * 32), f"{service.workspace}/project"
    seen = [(await service.chat(agent()).run()).reply_headers[HEADER]]
    for compression in ('{"model":"free","target_ratio":0.3}', '{"of":"a newer release"}', None):
        await elsewhere.change_project(project, {"compression": compression})
        service.time[0] += timedelta(seconds=KeyCacheTimes().ttl_s)
        reply = await service.chat(agent()).run()
        assert reply.status == 200
        seen.append(reply.reply_headers[HEADER])
    assert seen == ["off", "applied", "off", "off"]


async def test_what_only_compression_makes_fit_is_served_and_its_saving_counted(service: Compressing) -> None:
    service.engine.context_length = 400
    try:
        whole = await service.chat(agent(), compression=False).run()
        reply = (await service.chat(agent(), compression=FREE, max_tokens=20).run()).json()
    finally:
        service.engine.context_length = None
    assert whole.status == 422
    said = reply["service"]["compression"]
    assert said["original_tokens"] > 400 > said["sent_tokens"] == reply["usage"]["prompt_tokens"]


async def test_near_its_token_limit_a_chat_may_still_be_compressed_to_fit(service: Compressing) -> None:
    """There the limit has the prompt counted, before anything of it is compressed."""
    await service.new_key(limits=ProjectLimits(tokens_per_minute=1000))
    service.engine.context_length = 400
    try:
        reply = await service.chat(agent(), compression=FREE, max_tokens=20).run()
        too_long = await service.chat(agent(), compression={**FREE, "target_ratio": 1}, max_tokens=20).run()
    finally:
        service.engine.context_length = None
    assert (reply.status, reply.reply_headers[HEADER]) == (200, "applied")
    assert too_long.status == 422


@pytest.mark.parametrize("off", [None, False])
async def test_a_request_turns_its_project_s_default_off(service: Compressing, off: Any) -> None:
    await service.set_default(**FREE)
    reply = await service.chat(agent(), compression=off).run()
    assert reply.reply_headers[HEADER] == "off"
    assert sent(service)[2]["content"] == PASSAGES


async def test_what_a_request_says_comes_before_its_project_s_default(service: Compressing) -> None:
    await service.set_default(target_ratio=0.9, model="free")
    reply = await service.chat(agent(), compression={"target_ratio": 0.2}).run()
    (block,) = reply.json()["service"]["compression"]["blocks"]
    assert block["receipt"]["target_ratio"] == 0.2


@pytest.mark.parametrize(
    ("compression", "loc"),
    [
        ({"target_ratio": 0}, ["body", "compression", "target_ratio"]),
        ({"model": "nobody"}, ["body", "compression", "model"]),
        # The model has no calibration.
        ({"keep": 0.9, "model": "free"}, ["body", "compression", "keep"]),
        (True, ["body", "compression"]),
        ("on", ["body", "compression"]),
        ([], ["body", "compression"]),
    ],
)
async def test_bad_values_are_named(service: Compressing, compression: Any, loc: list[str]) -> None:
    reply = await service.chat(asked(), compression=compression).run()
    assert reply.status == 422
    assert loc in [issue["loc"] for issue in reply.json()["detail"]]


@pytest.mark.parametrize("compression", [FREE, False])
async def test_a_bad_mark_is_named_also_where_compression_is_off(
    service: Compressing, compression: Any
) -> None:
    reply = await service.chat(asked(mark="yes"), compression=compression).run()
    assert reply.status == 422
    assert reply.json()["detail"][0]["loc"] == ["body", "messages", 0, "content", 0, "compress"]


async def test_a_default_that_the_model_does_not_take_is_no_client_s_fault(service: Compressing) -> None:
    await service.set_default(keep=0.9, model="free")
    reply = await service.chat(agent()).run()
    assert reply.status == 200
    assert reply.json()["service"]["compression"]["status"] == "failed"
    assert sent(service)[2]["content"] == PASSAGES


async def test_a_short_text_is_sent_as_it_is(service: Compressing) -> None:
    reply = await service.chat(agent("Item 17 costs 119 dollars."), compression=FREE).run()
    said = reply.json()["service"]["compression"]
    assert (said["status"], said["tokens_saved"]) == ("skipped", 0)
    assert said["blocks"][0]["reason"] == "below_min_tokens"
    assert service.model.started == []


async def test_a_caller_may_refuse_to_send_it_whole(service: Compressing) -> None:
    service.model.failures[PASSAGES] = CompressorFailed("it died")
    reply = await service.chat(agent(), compression={**FREE, "on_failure": "refuse"}).run()
    assert reply.status == 503
    assert reply.reply_headers["retry-after"]
    assert service.engine.requests == []


async def test_a_compressor_that_hangs_does_not_hold_the_chat_up(tmp_path: Path) -> None:
    async with compressing(tmp_path, chat_deadline_s=0.2) as service:
        service.model.gates[PASSAGES] = asyncio.Event()
        async with asyncio.timeout(60):
            reply = await service.chat(agent(), compression=FREE).run()
    assert reply.json()["service"]["compression"]["blocks"][0]["reason"] == "timed_out"
    assert service.model.cancelled == [PASSAGES]


async def test_the_ledger_knows_what_was_saved(service: Compressing) -> None:
    reply = (await service.chat(agent(), compression=FREE).run()).json()
    said = reply["service"]["compression"]
    (event,) = await service.events()
    assert event["original_tokens"] == said["original_tokens"]
    assert event["prompt_tokens"] == said["sent_tokens"]
    assert event["saved_nano_usd"] == round(said["saved_usd"] * 10**9)
    assert event["compression"] == "applied"
    assert event["conversation"] is None


async def test_a_held_out_conversation_is_left_whole_in_every_turn(service: Compressing) -> None:
    sides = {}
    for name in range(12):
        messages = [{"role": "user", "content": f"{name}: {QUESTION}"}, *agent()[1:]]
        for turn in (messages, [*messages, {"role": "assistant", "content": "119."}, *asked()]):
            reply = (await service.chat(turn, compression={**FREE, "holdout": 0.5}).run()).json()
            said = reply["service"]["compression"]
            assert sides.setdefault(name, said["holdout"]) == said["holdout"]
            assert said["status"] == ("skipped" if said["holdout"] else "applied")
    assert set(sides.values()) == {True, False}
    events = await service.events()
    assert len({event["conversation"] for event in events}) == 12
    assert {event["compression"] for event in events} == {"holdout", "applied"}


async def test_json_stays_json(service: Compressing) -> None:
    rows = json.dumps([{"item": i, "price": i * 7, "colour": f"number {i % 5}"} for i in range(80)])
    await service.chat(agent(rows), compression=FREE).run()
    kept = json.loads(sent(service)[2]["content"])
    assert 0 < len(kept) < 40


async def original(service: Compressing, id_: str) -> Client:
    path, key = f"/v1/compress/{id_}/original", {"Authorization": f"Bearer {service.key}"}
    return await Client(service.api, path, "GET", key).run()


async def test_the_original_of_a_block_can_be_fetched_while_it_is_kept(service: Compressing) -> None:
    reply = (await service.chat(agent(), compression={**FREE, "retain_s": 600}).run()).json()
    (block,) = reply["service"]["compression"]["blocks"]
    assert block["retained_until"] > time.time() + 500
    assert (await original(service, block["id"])).json()["text"] == PASSAGES
    await service.new_key()
    assert (await original(service, block["id"])).status == 404


async def test_nothing_is_kept_unless_it_is_asked_for(service: Compressing) -> None:
    reply = (await service.chat(agent(), compression=FREE).run()).json()
    (block,) = reply["service"]["compression"]["blocks"]
    assert block["retained_until"] is None
    assert (await original(service, block["id"])).status == 404


async def test_with_marked_gaps_the_model_is_given_the_id_under_which_they_open(service: Compressing) -> None:
    kept = {**FREE, "retain_s": 600, "mark_gaps": True}
    reply = (await service.chat(agent(), compression=kept).run()).json()
    (block,) = reply["service"]["compression"]["blocks"]
    text = sent(service)[2]["content"]
    assert text.endswith(f"\n[… {block['id']}]")
    rows = json.dumps([{"item": i, "price": i * 7} for i in range(80)])
    await service.chat(agent(rows), compression=kept).run()
    json.loads(sent(service)[2]["content"])


async def test_keeping_longer_than_the_server_allows_is_refused(service: Compressing) -> None:
    reply = await service.chat(agent(), compression={**FREE, "retain_s": 10**8}).run()
    assert reply.status == 422
    assert reply.json()["detail"][0]["loc"] == ["body", "compression", "retain_s"]


async def test_passages_in_parts_of_their_own_share_what_may_be_kept(service: Compressing) -> None:
    passages = [{"type": "text", "text": text, "compress": True} for text in PASSAGES.split("\n\n")]
    question = {"type": "text", "text": QUESTION}
    reply = await service.chat([{"role": "user", "content": [*passages, question]}], compression=FREE).run()
    (block,) = reply.json()["service"]["compression"]["blocks"]
    assert (block["part"], block["parts"]) == (0, list(range(60)))
    texts = [part["text"] for part in sent(service)[0]["content"]]
    assert "price of 119 dollars" in texts[17]
    assert sum(map(len, texts[:-1])) < 0.4 * len(PASSAGES)
    assert texts[-1] == QUESTION


async def test_a_ratio_outside_the_model_s_bounds_is_refused_whatever_the_prompt(
    service: Compressing,
) -> None:
    short = [{"role": "user", "content": "hi"}]
    service.bounds(0.2, 0.8)
    reply = await service.chat(short, compression={"target_ratio": 0.1, "model": "free"}).run()
    service.bounds(0.0, 1.0)
    assert reply.status == 422
    assert reply.json()["detail"][0]["loc"] == ["body", "compression", "target_ratio"]


async def test_a_default_that_does_not_fit_blames_no_request_that_changes_something_else(
    service: Compressing,
) -> None:
    await service.set_default(keep=0.9, model="free")
    reply = await service.chat(agent(), compression={"min_tokens": 1}).run()
    assert (reply.status, reply.reply_headers[HEADER]) == (200, "failed")
    await service.new_key()
    await service.set_default(target_ratio=0.3, model="gone")
    assert (await service.chat(agent()).run()).reply_headers[HEADER] == "off"
    await service.new_key()
    await service.set_default(target_ratio=0.3, model="gone")
    reply = await service.chat(agent(), compression={"target_ratio": 0.3}).run()
    assert reply.json()["service"]["compression"]["model"] == "lexical"


async def test_a_client_takes_no_conversation_out_of_its_project_s_comparison(service: Compressing) -> None:
    await service.set_default(**FREE, holdout=1)
    reply = await service.chat(agent(), compression={"holdout": 0}).run()
    assert reply.json()["service"]["compression"]["holdout"] is True


async def test_a_stream_that_breaks_says_what_was_compressed_of_what_it_charges(service: Compressing) -> None:
    service.engine.fails_with, service.engine.fails_after = EngineFailed("it died"), 3
    try:
        reply = await service.chat(agent(), compression=FREE, stream=True).run()
    finally:
        service.engine.fails_with, service.engine.fails_after = None, 0
    last = json.loads(reply.body.split(b"data: ")[-1])
    assert last["service"]["compression"]["status"] == "applied"


async def test_a_last_line_with_an_id_is_left_out_where_it_costs_what_was_saved(service: Compressing) -> None:
    text = " ".join(f"word{i}" for i in range(150)) + ". " + " ".join(f"other{i}" for i in range(12)) + "."
    kept = {"model": "free", "target_ratio": 0.95, "retain_s": 600, "mark_gaps": True}
    reply = (await service.chat(agent(text), compression=kept).run()).json()
    said = reply["service"]["compression"]
    assert said["sent_tokens"] <= said["original_tokens"]
