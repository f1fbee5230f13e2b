"""What holds a reply reaches the engine from chats, completions and batches of `/openai/v1`, and from nowhere else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.serve.batches.uploading import chat_line, ended, jsonl, made
from tests.serve.served import HI, Served, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")
CHAT, COMPLETION = "/openai/v1/chat/completions", "/openai/v1/completions"
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": HI, "max_tokens": 6},
    COMPLETION: {"prompt": "hi", "max_tokens": 6},
    "/v1/chat/completions": {"messages": HI, "max_tokens": 6},
    "/openai/v1/responses": {"input": "hi", "max_output_tokens": 16},
    "/anthropic/v1/messages": {"messages": HI, "max_tokens": 6},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    async with serving(tmp_path_factory.mktemp("served")) as service:
        yield service


@pytest_asyncio.fixture(loop_scope="module")
async def served(service: Served) -> Served:
    return await service.renewed()


@pytest.mark.parametrize("path", [CHAT, COMPLETION])
async def test_it_reaches_the_engine(served: Served, path: str) -> None:
    for extra in ({"structured_outputs": {"regex": "a+"}}, {"guided_choice": ["a", "b"]}):
        client = await served.post(path, {**BODIES[path], **extra}).run()
        assert client.status == 200, client.body
        options = served.engine.requests[-1].options
        assert {name: options[name] for name in extra if name != "guided_choice"} | {
            name: options[name]["choice"] for name in extra if name == "guided_choice"
        } == extra


@pytest.mark.parametrize("path", [path for path in BODIES if path not in (CHAT, COMPLETION)])
async def test_elsewhere_it_does_not(served: Served, path: str) -> None:
    for extra in ({"structured_outputs": {"regex": "a+"}}, {"guided_regex": "a+"}):
        client = await served.post(path, {**BODIES[path], **extra}).run()
        assert client.status in (200, 400), client.body
        assert client.status == 400 or not set(extra) & set(served.engine.requests[-1].options)
        assert path != "/v1/chat/completions" or client.status == 400


@pytest.mark.parametrize("path", [CHAT, COMPLETION])
async def test_what_is_wrong_with_it_is_a_400_that_names_it(served: Served, path: str) -> None:
    wrong: dict[str, dict[str, Any]] = {
        "guided_regex": {"guided_regex": 7},
        "structured_outputs.choice": {"structured_outputs": {"choice": []}},
        "structured_outputs.structural_tag": {"structured_outputs": {"structural_tag": "{}"}},
        "guided_json.properties.a.pattern": {"guided_json": {"properties": {"a": {"pattern": ".*" * 30}}}},
        "guided_decoding_backend": {"guided_decoding_backend": "outlines"},
    }
    for param, extra in wrong.items():
        client = await served.post(path, {**BODIES[path], **extra}).run()
        assert (client.status, client.json()["error"]["param"]) == (400, param)


async def test_a_line_of_a_batch_has_it_and_one_that_is_wrong_fails_alone(served: Served) -> None:
    lines = [chat_line("a", guided_regex="a+"), chat_line("b", guided_regex=7)]
    done = await ended(served, await made(served, jsonl(lines)))
    assert done.request_counts is not None
    assert (done.request_counts.completed, done.request_counts.failed) == (1, 1)
    assert [request.options.get("guided_regex") for request in served.engine.requests] == [{"regex": "a+"}]
