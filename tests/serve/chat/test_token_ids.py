"""Hashes of a chat's tokens in its usage event, and token ids in the reply that asks for them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import text

from models.counted_tokens import TokenIds, token_ids_of
from models.fake_engine import SOURCE, TEXT, FakeEngine
from tests.serve.served import Served, at_rest, eventually, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")
INCLUDED = {"include": ["token_ids"]}
# Of the fake: a word's is its length; the prompt is a role and a text in quotes.
PROMPT, REPLY = (4, 4), tuple(len(word) + bool(at) for at, word in enumerate(TEXT.split()))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    async with serving(tmp_path_factory.mktemp("served")) as served:
        yield served


@pytest_asyncio.fixture(loop_scope="module")
async def served(module_served: Served) -> Served:
    return await module_served.renewed()


def expected(*counts: int) -> str:
    return TokenIds([PROMPT], [REPLY[:count] for count in counts], SOURCE).sha256()


async def rows(served: Served) -> list[tuple[str, int, str]]:
    await at_rest()
    statement = text(
        "SELECT outcome, completion_tokens, tokens_sha256 FROM usage_events e JOIN workspaces w "
        "ON w.id = e.workspace_id WHERE w.name = :name ORDER BY event_id"
    )
    found = await served.database.read(lambda c: c.execute(statement, {"name": served.workspace}).all())
    return [(row.outcome, row.completion_tokens, row.tokens_sha256) for row in found]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("n", [1, 3])
async def test_the_event_has_the_hash_of_every_choice(served: Served, n: int, stream: bool) -> None:
    await served.chat(n=n, stream=stream, temperature=1).run()
    assert await rows(served) == [("completed", 6 * n, expected(*[6] * n))]


async def test_a_stream_that_is_left_has_the_hash_of_what_it_is_charged_for(served: Served) -> None:
    served.engine = FakeEngine(token_s=0.02)
    client = served.chat(stream=True, max_tokens=18)
    running = client.start()
    await eventually(lambda: client.body)
    client.gone.set()
    await running
    ((outcome, tokens, found),) = await rows(served)
    assert outcome == "disconnected" and 0 < tokens < 18
    assert found == expected(tokens)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/openai/v1/chat/completions"])
async def test_a_reply_tells_its_token_ids_where_it_is_asked(served: Served, path: str) -> None:
    asked: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 6}
    plain = (await served.post(path, asked).run()).json()
    told = (await served.post(path, asked | INCLUDED).run()).json()
    assert "tokens" not in plain["service"]
    assert (
        token_ids_of(told["service"]["tokens"]).fields() == TokenIds([PROMPT], [REPLY[:6]], SOURCE).fields()
    )
    assert told["service"]["tokens"]["tokens_sha256"] == expected(6) == (await rows(served))[1][2]
    assert told["usage"] == plain["usage"]


async def test_the_last_event_of_a_stream_tells_them(served: Served) -> None:
    *_, last, _ = (await served.chat(stream=True, **INCLUDED).run()).events()
    assert last["service"]["tokens"] == TokenIds([PROMPT], [REPLY[:6]], SOURCE).fields()


@pytest.mark.parametrize("include", [["usage"], "token_ids", ["token_ids"] * 9])
async def test_nothing_else_can_be_included(served: Served, include: Any) -> None:
    assert (await served.chat(include=include).run()).status == 422


async def test_the_engine_sees_no_option_of_that_name(served: Served) -> None:
    await served.chat(**INCLUDED).run()
    (request,) = served.engine.requests
    assert "include" not in request.options and request.tells_tokens
