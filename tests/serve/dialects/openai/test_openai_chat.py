"""OpenAI's chat: its defaults, its stream, its errors; the work and the money are those of the contract's."""

from typing import Any

import pytest

from billing.caller import ProjectLimits
from models.errors import EngineFailed
from models.fake_engine import FakeEngine
from tests.serve.served import HI, Client, Served

pytestmark = pytest.mark.asyncio(loop_scope="module")
PATH = "/openai/v1/chat/completions"


async def chat(served: Served, **fields: Any) -> Client:
    return await served.post(PATH, {"messages": HI, **fields}).run()


async def test_without_a_limit_the_reply_gets_what_the_prompt_leaves(served: Served) -> None:
    await chat(served, ignore_eos=True, max_completion_tokens=20_000)
    await chat(served)
    given, default = served.engine.requests
    assert (given.max_tokens, given.max_tokens_field) == (20_000, "max_completion_tokens")
    model = served.settings.models[0]
    assert (default.max_tokens, default.max_tokens_field) == (model.context_length, None)
    # The engine's own temperature, not the contract's.
    assert "temperature" not in default.options


async def test_without_a_limit_a_caller_with_little_money_gets_a_short_reply(served: Served) -> None:
    served.engine = FakeEngine(context_length=4096)
    # The rest of the context would cost 1.6 dollars, and 512 tokens cost 0.2.
    key = {"Authorization": f"Bearer {await served.new_key('poor', spend_limit_nano_usd=10**9 // 2)}"}
    client = await served.post(PATH, {"messages": HI, "min_tokens": 600}, headers=key).run()
    assert client.status == 200 and client.json()["usage"]["completion_tokens"] == 512
    refused = await served.post(PATH, {"messages": HI, "max_tokens": 4000}, headers=key).run()
    assert (refused.status, refused.json()["error"]["code"]) == (402, "insufficient_quota")
    await served.assert_nothing_is_left_open()


async def test_without_a_limit_a_project_with_few_tokens_a_minute_gets_a_short_reply(served: Served) -> None:
    limits = ProjectLimits(tokens_per_minute=1000)
    key = {"Authorization": f"Bearer {await served.new_key('slow', limits=limits)}"}
    assert (await served.post(PATH, {"messages": HI}, headers=key).run()).status == 200
    assert served.engine.requests[0].max_tokens == 512
    assert (await served.post(PATH, {"messages": HI, "max_tokens": 4000}, headers=key).run()).status == 429
    await served.assert_nothing_is_left_open()


async def test_a_reply_lists_no_more_log_probabilities_than_a_replica_has_room_for(served: Served) -> None:
    listing = {"logprobs": True, "top_logprobs": 20, "n": 8}
    await chat(served, **listing)
    assert served.engine.requests[0].max_tokens == 2**20 // (8 * 21)
    refused = await chat(served, **listing, max_tokens=7000)
    assert (refused.status, refused.json()["error"]["param"]) == (400, "logprobs")


async def test_every_chunk_of_a_stream_has_a_choice_unless_usage_was_asked_for(served: Served) -> None:
    plain = (await chat(served, stream=True)).events()
    assert plain[-1] == "[DONE]"
    assert all(event["choices"] for event in plain[:-1])
    asked = (await chat(served, stream=True, stream_options={"include_usage": True})).events()
    *chunks, last, done = asked
    assert done == "[DONE]" and all(chunk["choices"] for chunk in chunks)
    assert last["choices"] == [] and last["usage"]["total_tokens"] > 2
    assert last["service"]["metering"] == {"persisted": True, "status": "persisted"}
    assert len(await served.events()) == 2


@pytest.mark.parametrize(
    ("fields", "key", "status", "code"),
    [
        ({}, "nonsense", 401, "invalid_api_key"),
        ({}, "", 401, "invalid_api_key"),
        ({"model": "gpt-4o"}, None, 404, "model_not_found"),
        ({"temperature": 9}, None, 400, "invalid_body"),
        ({"messages": []}, None, 400, "invalid_body"),
        ({"service_tier": "flex"}, None, 400, "unsupported_option"),
        ({"max_tokens": 10**6}, None, 400, "context_length_exceeded"),
    ],
)
async def test_errors_are_openais(
    served: Served, fields: dict[str, Any], key: str | None, status: int, code: str
) -> None:
    served.engine = FakeEngine(context_length=4096)
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    client = await served.post(PATH, {"messages": HI, **fields}, headers=headers).run()
    assert client.status == status
    body = client.json()
    assert set(body) == {"error"} and set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["code"] == code and body["error"]["message"]
    # By these words litellm tells a wrong key from a wrong request.
    assert key != "nonsense" or body["error"]["message"].startswith("Incorrect API key provided")


async def test_an_unknown_path_is_openais_404_too(served: Served) -> None:
    client = await served.post("/openai/v1/nothing", {}).run()
    assert client.status == 404 and set(client.json()) == {"error"}


async def test_a_stream_that_breaks_ends_with_openais_error_and_what_was_charged(served: Served) -> None:
    served.engine = FakeEngine(fails_with=EngineFailed("the engine died"), fails_after=3)
    events = (await chat(served, stream=True)).events()
    assert events[-1]["error"]["code"] == "engine_failed" and "detail" not in events[-1]
    assert events[-1]["usage"]["completion_tokens"] == 3
    await served.assert_nothing_is_left_open()


async def test_a_reply_that_was_begun_is_continued_on_request(served: Served) -> None:
    begun = [*HI, {"role": "assistant", "content": "Once"}]
    await served.post(PATH, {"messages": begun, "continue_final_message": True}).run()
    await served.post(PATH, {"messages": begun}).run()
    assert [bool(request.form_options) for request in served.engine.requests] == [True, False]
    refused = await chat(served, continue_final_message=True)
    assert (refused.status, refused.json()["error"]["param"]) == (400, "continue_final_message")
