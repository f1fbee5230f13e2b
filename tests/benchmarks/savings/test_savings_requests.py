"""What the benchmark of savings sends: sessions that grow, passages that make up the context, servers at set prices."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from benchmarks.evaluation.case import Case
from benchmarks.load.exchange import Failed
from benchmarks.load.loop import Target
from benchmarks.load.server import CannotRun
from benchmarks.savings.conversation import Conversation, conversations
from benchmarks.savings.kept import JOINT
from benchmarks.savings.measured import Measured, read
from benchmarks.savings.passages import SHAPES, messages
from benchmarks.savings.prices import CONTEXT_LENGTH, SCENARIOS, config_with
from benchmarks.savings.replay import SETTINGS, WHOLE, replay_all
from benchmarks.savings.reply import TOKENS, body_of
from serve.config.settings import load_settings

MESSAGES = (
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hi"},
    {"role": "user", "content": "And?"},
    {"role": "assistant", "content": "Well"},
)


def test_each_message_of_the_assistant_is_a_request_with_all_that_was_said_before() -> None:
    session = Conversation("a", MESSAGES)
    assert list(session.requests()) == [MESSAGES[:2], MESSAGES[:4]]
    assert list(session.without_system().requests()) == [MESSAGES[1:2], MESSAGES[1:4]]


def test_fewer_sessions_are_taken_evenly_from_all(tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match="has no tau"):
        conversations(tmp_path, None)
    rows = [{"task_id": number, "messages": MESSAGES} for number in range(10)]
    with gzip.open(tmp_path / "tau_made.jsonl.gz", "wt") as file:
        file.write("\n".join(map(json.dumps, rows)))
    assert [each.task for each in conversations(tmp_path, 3)] == ["0", "3", "6"]
    assert len(conversations(tmp_path, None)) == len(conversations(tmp_path, 99)) == 10


@pytest.mark.parametrize("shape", SHAPES)
def test_the_parts_before_the_question_are_the_context_and_only_marked_where_asked(shape: str) -> None:
    context = "First passage.\n\nSecond passage."
    case = Case("nq", "nq-1", "Who?", context, ((0, 14), (16, 31)))
    [message] = messages(case, shape, marked=True)
    *before, question = message["content"]
    assert JOINT.join(part["text"] for part in before) == context
    assert len(before) == (1 if shape == SHAPES[0] else 2)
    assert all(part["compress"] for part in before) and "compress" not in question
    assert question["text"] == "Who?"
    [plain] = messages(case, shape, marked=False)
    assert not any("compress" in part for part in plain["content"])


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_server_is_the_configured_one_at_these_prices_with_a_longer_context(
    tmp_path: Path, name: str
) -> None:
    base, prices = Path("configs/tiny.yaml"), SCENARIOS[name]
    path, model = config_with(base, tmp_path, name, block_size=32)
    [made], given = load_settings(path).models, load_settings(base).models[0]
    assert (made.id, made.context_length, made.engine.block_size) == (model, CONTEXT_LENGTH, 32)
    assert str(made.price.minimum_request_usd) == prices.minimum
    changed = {"context_length", "price", "engine"}
    assert made.model_dump(exclude=changed) == given.model_dump(exclude=changed)
    [compressor] = load_settings(path).compression.models
    assert str(compressor.price_usd_per_mtok_input) == prices.compression


@pytest.fixture
async def served() -> AsyncIterator[tuple[str, list[tuple[str, int]]]]:
    """A server that streams a word; its address, and the key and length of every request in order."""
    asked: list[tuple[str, int]] = []

    async def chat(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        asked.append((request.headers["Authorization"].removeprefix("Bearer "), len(body["messages"])))
        if body["messages"][-1]["content"] == "fail":
            return web.Response(status=503, text="busy")
        usage = {"prompt_tokens": 10, "completion_tokens": TOKENS}
        last = {"choices": [], "usage": usage, "service": {"billing": {"request_cost_usd": 0.1}}}
        events = [{"choices": [{"delta": {"content": "a"}}]}, last]
        text = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
        return web.Response(text=text, content_type="text/event-stream")

    app = web.Application()
    app.router.add_post("/v1/chat/completions", chat)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}", asked
    await runner.cleanup()


async def test_every_side_sends_each_request_before_the_next_and_another_begins_each_time(
    served: tuple[str, list[tuple[str, int]]], tmp_path: Path
) -> None:
    url, asked = served
    requests = tuple(body_of("m", each) for each in Conversation("a", MESSAGES).requests())
    bodies = dict.fromkeys(SETTINGS, requests)
    to = {side: Target(url, side) for side in SETTINGS}
    found = await replay_all([("a", bodies), ("b", bodies)], to, lambda: None)
    assert [length for _, length in asked] == [2, 2, 2, 4, 4, 4] * 2
    turns = [[key for key, _ in asked[at : at + 3]] for at in range(0, 12, 3)]
    assert all(sorted(turn) == sorted(SETTINGS) for turn in turns)
    assert turns[0] != turns[1] and turns[2] != turns[3]
    assert [len(found[1].replies[side]) for side in SETTINGS] == [2, 2, 2]
    assert found[0].replies[WHOLE][0].chat_nano_usd == 100_000_000
    measured = Measured(sessions={"free, as sent": found}, idle=[(1.0, 2.0)])
    measured.write(tmp_path)
    again = read(tmp_path)
    assert again.sessions["free, as sent"][1].replies["keep 0.95"][0].prompt_tokens == 10
    again.add(Measured(sessions={"priced, as sent": found}))
    assert list(again.sessions) == ["free, as sent", "priced, as sent"] and again.idle == [(1.0, 2.0)]


async def test_a_request_that_fails_ends_the_measurement(served: tuple[str, list[tuple[str, int]]]) -> None:
    url, _ = served
    body = body_of("m", [{"role": "user", "content": "fail"}])
    with pytest.raises(Failed, match="503 busy"):
        await replay_all([("a", {WHOLE: [body]})], {WHOLE: Target(url, "k")}, lambda: None)
