"""Completions: every choice of every prompt on one bill; and constraints on replies, in all of OpenAI's routes."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types import Completion

from models.errors import EngineFailed, InvalidField
from models.fake_engine import FakeEngine
from serve.dialects.openai.completions import CompletionRequest
from tests.serve.batches.uploading import chat_line, ended, jsonl, made
from tests.serve.served import HI, INPUT_NANO_USD, OUTPUT_NANO_USD, Client, Event, Served

pytestmark = pytest.mark.asyncio(loop_scope="module")
PATH = "/openai/v1/completions"


async def complete(served: Served, prompt: Any, **fields: Any) -> Client:
    return await served.post(PATH, {"prompt": prompt, **fields}).run()


@pytest.mark.parametrize(
    ("prompt", "prompts", "tokens"),
    [
        ("once upon a time", ("once upon a time",), 4),
        (["once upon", "a time"], ("once upon", "a time"), 4),
        ([5, 6, 7], ((5, 6, 7),), 3),
        ([[5, 6, 7], [8]], ((5, 6, 7), (8,)), 4),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_every_choice_of_every_prompt_is_one_bill(
    served: Served, prompt: Any, prompts: tuple[Any, ...], tokens: int, stream: bool
) -> None:
    client = await complete(served, prompt, n=2, max_tokens=5, stream=stream)
    assert client.status == 200
    (asked,) = served.engine.requests
    assert (asked.form, asked.prompts, asked.messages) == ("completion", prompts, ())
    made = 5 * 2 * len(prompts)
    cost = tokens * INPUT_NANO_USD + made * OUTPUT_NANO_USD
    assert await served.events() == [Event("completed", tokens, made, cost, False, stream)]
    if not stream:
        reply = client.json()
        whole = Completion.model_validate(reply)
        assert len(whole.choices) == 2 * len(prompts) and whole.usage is not None
        assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (tokens, made)
        assert reply["service"]["billing"]["request_cost_usd"] == cost / 10**9
    await served.assert_nothing_is_left_open()


async def test_the_defaults_are_openais(served: Served) -> None:
    await complete(served, "hi", suffix="", best_of=1, stop=None, logprobs=None, user="me")
    (asked,) = served.engine.requests
    assert asked.max_tokens == 16 and not asked.stream
    assert dict(asked.options) == {} and dict(asked.form_options) == {}


async def test_options_reach_the_engine_and_usage_comes_on_request(served: Served) -> None:
    sampling = {"temperature": 0.5, "top_k": 3, "min_p": 0.1, "repetition_penalty": 1.1, "ignore_eos": True}
    fields = {**sampling, "echo": True, "logprobs": 3, "stop": "fox", "stream": True}
    client = await complete(served, "hi", **fields, stream_options={"include_usage": True})
    (asked,) = served.engine.requests
    assert dict(asked.form_options) == {"echo": True, "logprobs": 3}
    assert dict(asked.options) == {**sampling, "stop": ["fox"]}
    *chunks, last, done = client.events()
    assert done == "[DONE]" and last["choices"] == [] and last["service"]["metering"]["persisted"]
    assert last["object"] == "text_completion" and {chunk["id"] for chunk in chunks} == {last["id"]}
    assert all(chunk["choices"] for chunk in (await complete(served, "hi", stream=True)).events()[:-1])


async def test_a_prompt_that_may_cost_more_than_is_left_is_counted_before_it_is_refused(
    served: Served,
) -> None:
    cheap = 2 * INPUT_NANO_USD + 4 * OUTPUT_NANO_USD
    key = await served.new_key(spend_limit_nano_usd=cheap)
    headers = {"Authorization": f"Bearer {key}"}
    body = {"prompt": ["hi", "ho"], "max_tokens": 2}
    assert (await served.post(PATH, body, headers=headers).run()).status == 200
    assert len(served.engine.counted) == 1
    assert (await served.post(PATH, body, headers=headers).run()).status == 402


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"prompt": ""}, "invalid_body", "prompt"),
        ({"prompt": []}, "invalid_body", "prompt"),
        ({"prompt": [[]]}, "invalid_body", "prompt"),
        ({"prompt": [1, "a"]}, "invalid_body", "prompt"),
        ({"prompt": [-1]}, "invalid_body", "prompt"),
        ({"prompt": [True]}, "invalid_body", "prompt"),
        ({"prompt": ["a"] * 129}, "invalid_body", "prompt"),
        ({"prompt": None}, "invalid_body", "prompt"),
        ({"suffix": "end"}, "unsupported_option", "suffix"),
        ({"prompt": ["a"] * 128, "n": 8, "max_tokens": 2048, "logprobs": 0}, "invalid_field", "logprobs"),
        (
            {"prompt": "a" * 2000, "max_tokens": 60_000, "echo": True, "logprobs": 20},
            "invalid_field",
            "logprobs",
        ),
        ({"best_of": 3}, "unsupported_option", "best_of"),
        ({"best_of": 1, "n": 2}, "invalid_field", "best_of"),
        ({"max_tokens": 0}, "invalid_field", "max_tokens"),
        ({"logprobs": 21}, "invalid_body", "logprobs"),
        ({"logprobs": True}, "invalid_body", "logprobs"),
        ({"prompt_logprobs": 1}, "unsupported_option", "prompt_logprobs"),
        ({"max_tokens": 5000}, "context_length_exceeded", "max_tokens"),
        ({"stream_options": {}}, "invalid_body", "stream_options"),
        ({"model": "davinci-002"}, "model_not_found", "model"),
    ],
)
async def test_what_is_wrong_is_named(served: Served, fields: dict[str, Any], code: str, param: str) -> None:
    served.engine = FakeEngine(context_length=4096)
    client = await served.post(PATH, {"prompt": "hi", **fields}).run()
    error = client.json()["error"]
    assert (client.status, error["code"]) == (404 if code == "model_not_found" else 400, code)
    assert error["param"] == param
    assert await served.events() == []


async def test_a_stream_that_breaks_is_billed_for_what_came(served: Served) -> None:
    served.engine = FakeEngine(fails_with=EngineFailed("the engine died"), fails_after=3)
    *_, last = (await complete(served, ["a", "b"], stream=True)).events()
    assert last["error"]["code"] == "engine_failed" and last["usage"]["completion_tokens"] == 6
    await served.assert_nothing_is_left_open()


@pytest.mark.parametrize("prompt", [[5] * 4097, "a" * 16_385])
async def test_an_engine_scores_no_more_of_a_prompt_at_once_than_it_has_room_for(prompt: Any) -> None:
    body = CompletionRequest.model_validate({"prompt": ["a", prompt], "echo": True, "logprobs": 0})
    with pytest.raises(InvalidField, match="at most 4096 tokens"):
        body.asked()


CHAT, COMPLETION = "/openai/v1/chat/completions", "/openai/v1/completions"
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": HI, "max_tokens": 6},
    COMPLETION: {"prompt": "hi", "max_tokens": 6},
    "/v1/chat/completions": {"messages": HI, "max_tokens": 6},
    "/openai/v1/responses": {"input": "hi", "max_output_tokens": 16},
    "/anthropic/v1/messages": {"messages": HI, "max_tokens": 6},
}


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
