"""What the engine is sent in one turn is, to the letter, the beginning of what it is sent in the next one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest
import pytest_asyncio

from tests.serve.compressing import Compressing, compressing

CONVERSATIONS = 40
TURNS = 5
Messages = list[dict[str, Any]]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Compressing]:
    async with compressing(tmp_path_factory.mktemp("prefix")) as found:
        yield found


pytestmark = pytest.mark.asyncio(loop_scope="module")


def text(random: Random) -> str:
    rows = [{"id": random.randrange(9999), "city": random.choice("ABC") * 6, "usd": n} for n in range(60)]
    kinds = [
        "Please.",
        json.dumps(rows[: random.randrange(60)], indent=random.choice([None, 1])),
        "\n".join(f"2026-11-{n:02} INFO request {row['id']} took {n} ms" for n, row in enumerate(rows)),
        "\n\n".join(
            f"The gate of flight {row['id']} is {row['city']}. It costs {row['usd']}." for row in rows
        ),
        f"What of {random.randrange(9999)}?",
    ]
    return random.choice(kinds)


def part(random: Random) -> dict[str, Any]:
    mark = random.choice([{}, {"compress": True}, {"compress": False}])
    return {"type": "text", "text": text(random), **mark}


def content(random: Random) -> Any:
    return text(random) if random.random() < 0.5 else [part(random) for _ in range(random.randrange(1, 4))]


def exchange(random: Random, name: str) -> Messages:
    """What a client adds in one turn: a question, or the results of the calls that the model made."""
    if random.random() < 0.4:
        return [{"role": "user", "content": content(random)}]
    count = random.randrange(1, 3)
    calls = [
        {
            "id": f"{name}-{n}",
            "type": "function",
            "function": {"name": "look_up", "arguments": json.dumps({"id": random.randrange(9999)})},
        }
        for n in range(count)
    ]
    results = [
        {"role": "tool", "tool_call_id": f"{name}-{n}", "content": content(random)} for n in range(count)
    ]
    return [{"role": "assistant", "content": None, "tool_calls": calls}, *results]


def settings(random: Random) -> dict[str, Any]:
    return {
        "target_ratio": random.choice([0.2, 0.3, 0.6]),
        "model": random.choice(["free", "lexical"]),
        "scope": random.choice(["marked", "all"]),
        "min_tokens": random.choice([1, 64, 500]),
        "mark_gaps": random.choice([True, False]),
    }


async def test_every_turn_sends_what_was_sent_before_and_more(service: Compressing) -> None:
    compressed = 0
    for seed in range(CONVERSATIONS):
        random = Random(seed)
        asked = settings(random)
        messages: Messages = [{"role": "user", "content": content(random)}]
        before: Messages = []
        for turn in range(TURNS):
            if random.random() < 0.5:
                # Another process answers, which has compressed nothing of it yet.
                service.forget()
            reply = await service.chat(messages, compression=asked, max_tokens=1).run()
            assert reply.status == 200, reply.body
            sent = [dict(message) for message in service.engine.requests[-1].messages]
            assert sent[: len(before)] == before, f"conversation {seed}, turn {turn}"
            compressed += reply.json()["service"]["compression"]["status"] == "applied"
            before = sent
            messages = [*messages, {"role": "assistant", "content": "Yes."}, *exchange(random, f"c{turn}")]
    assert compressed > CONVERSATIONS
