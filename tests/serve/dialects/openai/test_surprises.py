"""What clients send and read without being told, at both prefixes: the rows of docs/dialects.md, "Surprises"."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from billing.caller import ProjectLimits
from models.errors import EngineUnavailable
from models.fake_engine import FakeEngine
from tests.serve.served import HI, Client, Served, model_document, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")
SUFFIX = "/chat/completions"
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
READ = {"enable_auto_tool_choice": True, "tool_call_parser": "hermes"}
REFUSED = {"/v1": 422, "/openai/v1": 400}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    calls = model_document("alpha", capabilities={"tools": True}, engine=READ)
    models = [calls, model_document("beta"), model_document("gamma", capabilities={"tools": "ignore"})]
    async with serving(tmp_path_factory.mktemp("served"), models=models) as service:
        yield service


@pytest.fixture(params=["/v1", "/openai/v1"])
def base(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def ask(served: Served, base: str, **fields: Any) -> Client:
    return await served.post(base + SUFFIX, {"messages": HI, "max_tokens": 6, **fields}).run()


async def test_what_is_null_or_empty_counts_as_absent(served: Served, base: str) -> None:
    nothing = (
        "stop",
        "tools",
        "tool_choice",
        "n",
        "seed",
        "logprobs",
        "response_format",
        "user",
        "functions",
    )
    client = await ask(served, base, **dict.fromkeys(nothing))
    assert client.status == 200, client.body
    assert (await ask(served, base, tools=[], parallel_tool_calls=True)).status == 200
    assert all(set(request.options) <= {"temperature"} for request in served.engine.requests)


async def test_without_tools_only_a_demanded_call_is_wrong(served: Served, base: str) -> None:
    for choice in ("auto", "none"):
        assert (await ask(served, base, tool_choice=choice)).status == 200
    refused = await ask(served, base, tool_choice="required")
    assert (refused.status, refused.json()["error"]["param"]) == (REFUSED[base], "tool_choice")


async def test_tools_are_given_to_a_model_refused_or_ignored(served: Served, base: str) -> None:
    fields: dict[str, Any] = {"tools": [TOOL], "response_format": {"type": "json_object"}}
    assert (await ask(served, base, model="alpha", **fields)).status == 200
    refused = await ask(served, base, model="beta", **fields)
    assert (refused.status, refused.json()["error"]["param"]) == (400, "tools")
    assert (await ask(served, base, model="gamma", **fields)).status == 200
    given, ignored = served.engine.requests
    assert given.options["tools"] == [TOOL] and given.options["response_format"] == {"type": "json_object"}
    assert "tools" not in ignored.options and ignored.options["response_format"] == {"type": "json_object"}


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("functions", [{"name": "f"}]),
        ("function_call", "auto"),
        ("web_search_options", {}),
        ("service_tier", "flex"),
    ],
)
async def test_what_is_not_offered_is_refused_by_name(
    served: Served, base: str, option: str, value: Any
) -> None:
    refused = await ask(served, base, **{option: value})
    error = refused.json()["error"]
    assert (refused.status, error["param"], error["code"]) == (400, option, "unsupported_option")
    assert served.engine.requests == []


async def test_what_only_the_vendor_uses_has_no_effect(served: Served, base: str) -> None:
    theirs = {"user": "u", "metadata": {"a": "b"}, "safety_identifier": "s", "prompt_cache_key": "k"}
    client = await ask(served, base, **theirs, store=False, service_tier="auto", some_new_option=1)
    assert client.status == 200, client.body
    assert set(served.engine.requests[0].options) <= {"temperature"}


async def test_a_name_in_a_message_reaches_the_template(served: Served, base: str) -> None:
    await ask(served, base, messages=[{"role": "user", "name": "ada", "content": "hi"}])
    assert served.engine.requests[0].messages == ({"role": "user", "name": "ada", "content": "hi"},)


async def test_the_newer_name_of_the_limit_wins(served: Served, base: str) -> None:
    client = await ask(served, base, max_tokens=6, max_completion_tokens=3)
    assert client.json()["usage"]["completion_tokens"] == 3


async def test_several_greedy_choices_are_the_same_text_and_all_are_billed(served: Served, base: str) -> None:
    reply = (await ask(served, base, n=3, temperature=0)).json()
    first, *others = [choice["message"]["content"] for choice in reply["choices"]]
    assert others == [first] * 2
    assert reply["usage"]["completion_tokens"] == 18 and reply["usage"]["prompt_tokens"] == 2


async def test_log_probabilities_need_to_be_asked_for(served: Served, base: str) -> None:
    assert (await ask(served, base, logprobs=True)).status == 200
    refused = await ask(served, base, top_logprobs=2)
    assert (refused.status, refused.json()["error"]["param"]) == (REFUSED[base], "top_logprobs")


async def test_every_event_of_a_stream_is_a_chunk_and_none_a_comment(served: Served, base: str) -> None:
    options = {"continuous_usage_stats": True}
    client = await ask(served, base, stream=True, stream_options=options)
    *chunks, done = client.events()
    assert done == "[DONE]" and len(chunks) > 2
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert served.engine.requests[0].options["stream_options"]["continuous_usage_stats"]


async def test_every_reply_has_an_id_and_its_callers_if_there_is_one(served: Served, base: str) -> None:
    given = {"Authorization": f"Bearer {served.key}", "X-Request-ID": "mine"}
    replies = [
        await ask(served, base),
        await ask(served, base, temperature=9),
        await served.post(base + SUFFIX, {"messages": HI}, headers=given).run(),
    ]
    ids = [reply.reply_headers["x-request-id"] for reply in replies]
    assert all(ids) and len(set(ids)) == 3 and ids[2] == "mine"


async def test_sdks_are_told_when_to_try_again_and_when_not_to(served: Served, base: str) -> None:
    poor = {"Authorization": f"Bearer {await served.new_key(spend_limit_nano_usd=1)}"}
    broke = await served.post(base + SUFFIX, {"messages": HI}, headers=poor).run()
    assert broke.status == 402
    # The contract's headers are fixed, and the SDKs repeat no 402 anyway.
    assert broke.reply_headers.get("x-should-retry") == (None if base == "/v1" else "false")
    slow = {"Authorization": f"Bearer {await served.new_key(limits=ProjectLimits(requests_per_minute=1))}"}
    replies = [await served.post(base + SUFFIX, {"messages": HI}, headers=slow).run() for _ in range(2)]
    served.engine = FakeEngine(fails_with=EngineUnavailable("none is up", retry_after_s=7))
    replies.append(await ask(served, base))
    assert [reply.status for reply in replies] == [200, 429, 503]
    for refused in replies[1:]:
        assert int(refused.reply_headers["retry-after"]) > 0 and "x-should-retry" not in refused.reply_headers


async def test_as_many_stops_and_choices_as_clients_send(served: Served, base: str) -> None:
    for field, fine, more in (("stop", ["x"] * 64, ["x"] * 65), ("n", 10, 129)):
        given = await ask(served, base, **{field: fine})
        assert given.status == REFUSED[base] - 200 * (base != "/v1"), given.body
        refused = await ask(served, base, **{field: more})
        assert (refused.status, refused.json()["error"]["param"].split("[")[0]) == (REFUSED[base], field)


async def test_completions_and_messages_stop_at_as_many_texts(served: Served) -> None:
    stops = [f"stop {at}" for at in range(64)]
    completion = {"prompt": "hi", "stop": stops, "n": 9}
    assert (await served.post("/openai/v1/completions", completion).run()).status == 200
    message = {"messages": HI, "max_tokens": 6, "stop_sequences": stops}
    assert (await served.post("/anthropic/v1/messages", message).run()).status == 200
    assert [request.options["stop"] for request in served.engine.requests] == [stops, stops]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("functions", []),
        ("function_call", "none"),
        ("echo", False),
        ("documents", []),
        ("return_token_ids", False),
        ("priority", 0),
        ("guided_json", {}),
        ("store", True),
        ("verbosity", "low"),
        ("reasoning_effort", "none"),
        ("reasoning_effort", "low"),
    ],
)
async def test_what_asks_for_nothing_here_is_refused_by_the_contract_alone(
    served: Served, base: str, option: str, value: Any
) -> None:
    client = await ask(served, base, **{option: value})
    assert client.status == (400 if base == "/v1" else 200), client.body
    assert all(set(request.options) <= {"temperature"} for request in served.engine.requests)


async def test_a_response_asks_for_nothing_with_what_is_empty(served: Served) -> None:
    body = {"input": "hi", "context_management": [], "reasoning": {"effort": "none"}, "store": True}
    assert (await served.post("/openai/v1/responses", body).run()).status == 200
    assert (await served.post("/openai/v1/completions", {"prompt": "hi", "priority": 0}).run()).status == 200


async def test_a_choice_may_be_an_object_and_may_allow_some_tools(served: Served) -> None:
    other = {
        "type": "function",
        "function": {"name": "g", "parameters": {"type": "object", "properties": {}}},
    }
    named = {"type": "function", "function": {"name": "f"}}
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [named]}}
    fields: dict[str, Any] = {"model": "alpha", "tools": [TOOL, other]}
    for choice in ({"type": "required"}, allowed):
        client = await ask(served, "/openai/v1", **fields, tool_choice=choice)
        assert client.status == 200, client.body
    whole, some = served.engine.requests
    assert whole.options["tool_choice"] == some.options["tool_choice"] == "required"
    assert whole.options["tools"] == [TOOL, other] and some.options["tools"] == [TOOL]
    none: dict[str, Any] = {"type": "allowed_tools", "allowed_tools": {"tools": [{"name": "h"}]}}
    for choice in (none, {"type": "allowed_tools"}, {"type": ["auto"]}, {"type": "custom"}):
        refused = await ask(served, "/openai/v1", **fields, tool_choice=choice)
        assert refused.status == 400 and refused.json()["error"]["param"].startswith("tool_choice")
    body = {"input": "hi", "model": "alpha", "tool_choice": {"type": "auto"}}
    assert (await served.post("/openai/v1/responses", body).run()).status == 200


async def test_parts_have_a_responses_names_or_none_and_thoughts_are_left_out(served: Served) -> None:
    thoughts = [{"type": "thinking", "thinking": "…"}, {"type": "reasoning", "text": "…"}]
    messages = [
        {"role": "user", "content": [{"type": "input_text", "text": "a", "compress": False}, "b"]},
        {"role": "assistant", "content": [*thoughts, {"type": "output_text", "text": "c"}]},
        {"role": "assistant", "content": thoughts},
        {"role": "user", "content": "d"},
    ]
    client = await ask(served, "/openai/v1", messages=messages)
    assert client.status == 200, client.body
    texts = [{"type": "text", "text": text} for text in "abc"]
    assert [message["content"] for message in served.engine.requests[0].messages] == [
        texts[:2],
        texts[2:],
        "",
        "d",
    ]
    for content in (thoughts, [3], [["a"]]):
        refused = await ask(served, "/openai/v1", messages=[{"role": "user", "content": content}])
        assert refused.status == 400


async def test_what_was_not_set_is_minus_one_and_an_empty_token_no_key(served: Served) -> None:
    body = {"messages": HI, "max_tokens": 6, "top_p": -1, "top_k": -1}
    both = {"Authorization": "Bearer ", "x-api-key": served.key}
    client = await served.post("/anthropic/v1/messages", body, headers=both).run()
    assert client.status == 200, client.body
    assert not {"top_p", "top_k"} & set(served.engine.requests[0].options)
    wrong = {"Authorization": "Bearer wrong", "x-api-key": served.key}
    assert (await served.post("/anthropic/v1/messages", body, headers=wrong).run()).status == 401


async def test_slashes_too_many_lead_to_the_same_route(served: Served) -> None:
    for path in (
        "/openai/v1/chat/completions/",
        "//openai/v1//chat/completions",
        "/openai//v1/chat/completions",
    ):
        client = await served.post(path, {"messages": HI, "max_tokens": 6}).run()
        assert client.status == 200, client.body
    assert (await served.get("/anthropic//v1/models/").run()).status == 200
    assert (await served.get("/openai/v1/models/alpha/").run()).json()["id"] == "alpha"
    for path in ("/v1/models/", "//v1/models"):
        assert (await served.get(path).run()).status == 404


@pytest.mark.parametrize("path", ["/openai/v1/models", "/openai/v1/models/alpha", "/anthropic/v1/models"])
async def test_a_list_of_models_may_be_asked_for_its_headers(served: Served, path: str) -> None:
    client = await Client(served.api, path, "HEAD").run()
    assert (client.status, client.reply_headers["content-type"]) == (200, "application/json")
