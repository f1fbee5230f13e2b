"""Chat completions as JSON against sections 2, 4 and 8 of the contract, on the real server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.integration.contract_shapes import (
    BILLING,
    COMPLETION,
    ERROR,
    ISSUE,
    METERING,
    SERVICE,
    USAGE,
    mismatches,
    rows,
)

if TYPE_CHECKING:
    from tests.integration.running import Server

COMPLETIONS = "/v1/chat/completions"
USER = {"role": "user", "content": "Tell me about the river."}
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def chat(**fields: Any) -> dict[str, Any]:
    return {"messages": [USER], "max_tokens": 2, **fields}


@pytest.fixture(scope="module")
def reply(server: Server) -> httpx.Response:
    with server.client() as client:
        return client.post(COMPLETIONS, json=chat())


@pytest.fixture(scope="module")
def completion(reply: httpx.Response) -> dict[str, Any]:
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


@pytest.mark.parametrize(("field", "kind"), rows("ChatCompletionResponse", COMPLETION))
def test_a_completion_has(field: str, kind: Any, completion: dict[str, Any]) -> None:
    assert mismatches(completion, {field: kind}) == []


@pytest.mark.parametrize(("field", "kind"), rows("ChatCompletionResponse.service", SERVICE))
def test_the_service_object_has(field: str, kind: Any, completion: dict[str, Any]) -> None:
    assert mismatches(completion["service"], {field: kind}) == []


@pytest.mark.parametrize(("field", "kind"), rows("Usage", USAGE))
def test_usage_has(field: str, kind: Any, completion: dict[str, Any]) -> None:
    assert mismatches(completion["usage"], {field: kind}) == []


@pytest.mark.parametrize(("field", "kind"), rows("Metering", METERING))
def test_metering_has(field: str, kind: Any, completion: dict[str, Any]) -> None:
    assert mismatches(completion["service"]["metering"], {field: kind}) == []


@pytest.mark.parametrize(("field", "kind"), rows("Billing", BILLING))
def test_billing_has(field: str, kind: Any, completion: dict[str, Any]) -> None:
    assert mismatches(completion["service"]["billing"], {field: kind}) == []


def test_a_choice_is_openais(completion: dict[str, Any]) -> None:
    """2 ChatCompletionResponse: choices are OpenAI-style choice objects."""
    (choice,) = completion["choices"]
    assert mismatches(choice, {"index": int, "message": dict, "finish_reason": str}) == []
    assert mismatches(choice["message"], {"role": str, "content": str}) == []
    assert (choice["index"], choice["message"]["role"]) == (0, "assistant")
    assert choice["finish_reason"] == "length"
    assert completion["object"] == "chat.completion"


def test_a_completion_is_json_with_both_headers(reply: httpx.Response) -> None:
    """4 POST /v1/chat/completions: JSON when stream is absent; X-Request-ID and X-Service-Metering-Status."""
    assert reply.headers["content-type"].partition(";")[0] == "application/json"
    assert reply.headers["x-request-id"]
    assert reply.headers["x-service-metering-status"] == reply.json()["service"]["metering"]["status"]


def test_two_completions_have_two_ids(completion: dict[str, Any], http: httpx.Client) -> None:
    """2 ChatCompletionResponse: id."""
    assert http.post(COMPLETIONS, json=chat()).json()["id"] != completion["id"]


def message(**fields: Any) -> dict[str, Any]:
    return chat(messages=[USER, fields])


ACCEPTED: list[tuple[str, dict[str, Any]]] = [
    *((f"2 Message: role {role}", message(role=role, content="Hi.")) for role in ("system", "developer")),
    *((f"2 Message: role {role}", message(role=role, content="Hi.")) for role in ("user", "assistant")),
    ("2 Message: role tool", message(role="tool", content="5", tool_call_id="call_1")),
    ("2 Message: role function", message(role="function", content="5", name="f")),
    ("2 Message: content is a string", message(role="user", content="Hi.")),
    ("2 Message: content is an empty string", message(role="user", content="")),
    ("2 Message: content is any Unicode", message(role="user", content="żółw 🐢 \u0000 مرحبا")),
    ("2 Message: content is an array", message(role="user", content=[{"type": "text", "text": "Hi."}])),
    ("2 Message: content is two parts", message(role="user", content=[{"type": "text", "text": "Hi."}] * 2)),
    ("2 Message: content is an empty array", message(role="user", content=[])),
    ("2 Message: content is null", message(role="user", content=None)),
    ("2 Message: content is absent", message(role="user")),
    ("2 Message: tool_calls", message(role="assistant", content="Hi.", tool_calls=[CALL])),
    ("2 Message: tool_calls without content", message(role="assistant", tool_calls=[CALL])),
    ("2 Message: tool_calls are empty", message(role="assistant", content="Hi.", tool_calls=[])),
    ("2 Message: extra properties", message(role="user", content="Hi.", name="ann", mood=[{"a": None}])),
    ("2 ChatCompletionRequest: messages, 1 item", chat(messages=[USER])),
    ("2 ChatCompletionRequest: messages, 256 items", chat(messages=[{**USER, "content": "a"}] * 256)),
    ("2 ChatCompletionRequest: max_tokens 1", chat(max_tokens=1)),
    ("2 ChatCompletionRequest: max_tokens 2000", chat(max_tokens=2000, stop=["e", "a", "o"])),
    ("2 ChatCompletionRequest: max_tokens is absent", {"messages": [USER], "stop": ["e", "a", "o"]}),
    ("2 ChatCompletionRequest: temperature 0", chat(temperature=0)),
    ("2 ChatCompletionRequest: temperature 0.0", chat(temperature=0.0)),
    ("2 ChatCompletionRequest: temperature 1e-9", chat(temperature=1e-9)),
    ("2 ChatCompletionRequest: temperature 0.7", chat(temperature=0.7)),
    ("2 ChatCompletionRequest: temperature 1", chat(temperature=1)),
    ("2 ChatCompletionRequest: temperature 2", chat(temperature=2)),
    ("2 ChatCompletionRequest: temperature 2.0", chat(temperature=2.0)),
    ("2 ChatCompletionRequest: stream false", chat(stream=False)),
    ("2 ChatCompletionRequest: extra properties", chat(colour="red", nested={"a": [1, None]})),
    ("2 ChatCompletionRequest: extra properties without effect", chat(user="ann", metadata={"a": "b"})),
    ("7 Errors: an option that is no option is no error", chat(store=False, service_tier="auto")),
]


@pytest.mark.parametrize("body", [body for _, body in ACCEPTED], ids=[name for name, _ in ACCEPTED])
def test_accepted_is(body: dict[str, Any], http: httpx.Client) -> None:
    reply = http.post(COMPLETIONS, json=body)
    assert reply.status_code == 200, reply.text
    assert mismatches(reply.json(), COMPLETION) == []
    assert reply.headers["content-type"].partition(";")[0] == "application/json"


REFUSED: list[tuple[str, dict[str, Any], list[str | int]]] = [
    ("2 Message: role is required", message(content="Hi."), ["body", "messages", 1, "role"]),
    ("2 Message: role is one of six", message(role="bot"), ["body", "messages", 1, "role"]),
    ("2 Message: content is no number", message(role="user", content=5), ["body", "messages", 1, "content"]),
    (
        "2 Message: content holds objects",
        message(role="user", content=["a"]),
        ["body", "messages", 1, "content", 0],
    ),
    (
        "2 Message: tool_calls is an array",
        message(role="assistant", tool_calls={}),
        ["body", "messages", 1, "tool_calls"],
    ),
    (
        "2 Message: tool_calls holds objects",
        message(role="assistant", tool_calls=[1]),
        ["body", "messages", 1, "tool_calls", 0],
    ),
    ("2 ChatCompletionRequest: messages is required", {"max_tokens": 1}, ["body", "messages"]),
    ("2 ChatCompletionRequest: messages, 0 items", chat(messages=[]), ["body", "messages"]),
    ("2 ChatCompletionRequest: messages, 257 items", chat(messages=[USER] * 257), ["body", "messages"]),
    ("2 ChatCompletionRequest: model is a string", chat(model=1), ["body", "model"]),
    ("2 ChatCompletionRequest: model must be supported", chat(model="gpt-9"), ["body", "model"]),
    ("2 ChatCompletionRequest: max_tokens 0", chat(max_tokens=0), ["body", "max_tokens"]),
    ("2 ChatCompletionRequest: max_tokens 16385", chat(max_tokens=16_385), ["body", "max_tokens"]),
    ("2 ChatCompletionRequest: max_tokens is an integer", chat(max_tokens=1.5), ["body", "max_tokens"]),
    ("2 ChatCompletionRequest: temperature -0.01", chat(temperature=-0.01), ["body", "temperature"]),
    ("2 ChatCompletionRequest: temperature 2.01", chat(temperature=2.01), ["body", "temperature"]),
    ("2 ChatCompletionRequest: temperature is a number", chat(temperature="1"), ["body", "temperature"]),
    ("2 ChatCompletionRequest: stream is a boolean", chat(stream=1), ["body", "stream"]),
]


@pytest.mark.parametrize(
    ("body", "loc"), [(body, loc) for _, body, loc in REFUSED], ids=[name for name, _, _ in REFUSED]
)
def test_refused_is(body: dict[str, Any], loc: list[str | int], http: httpx.Client) -> None:
    reply = http.post(COMPLETIONS, json=body)
    assert reply.status_code == 422, reply.text
    assert mismatches(reply.json(), ERROR) == []
    issues = reply.json()["detail"]
    assert [mismatches(issue, ISSUE) for issue in issues] == [[]] * len(issues)
    assert loc in [issue["loc"] for issue in issues]
    assert "x-service-metering-status" not in reply.headers


def test_without_a_model_the_first_one_answers(completion: dict[str, Any], http: httpx.Client) -> None:
    """2 ChatCompletionRequest: the default of model is the first model id."""
    first = http.get("/v1/models").json()[0]["id"]
    assert completion["model"] == first
    assert http.post(COMPLETIONS, json=chat(model=first)).json()["model"] == first
    assert http.post(COMPLETIONS, json=chat(model=None)).json()["model"] == first


def test_without_max_tokens_512_are_the_most(http: httpx.Client) -> None:
    """2 ChatCompletionRequest and 8 Limits: the default of max_tokens is 512."""
    reply = http.post(COMPLETIONS, json={"messages": [USER], "ignore_eos": True}).json()
    assert reply["usage"]["completion_tokens"] == 512
    assert reply["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("limit", [1, 2, 40])
def test_max_tokens_is_the_most_that_is_generated(limit: int, http: httpx.Client) -> None:
    """2 ChatCompletionRequest and 8 Limits: max_tokens."""
    reply = http.post(COMPLETIONS, json=chat(max_tokens=limit, ignore_eos=True)).json()
    assert reply["usage"]["completion_tokens"] == limit


def test_without_a_temperature_the_likeliest_reply_comes(http: httpx.Client) -> None:
    """2 ChatCompletionRequest and 8 Limits: the default of temperature is 0."""
    bodies = [chat(max_tokens=30), chat(max_tokens=30), chat(max_tokens=30, temperature=0)]
    replies = [http.post(COMPLETIONS, json=body).json() for body in bodies]
    texts = {reply["choices"][0]["message"]["content"] for reply in replies}
    assert len(texts) == 1


def test_a_high_temperature_makes_replies_differ(http: httpx.Client) -> None:
    """2 ChatCompletionRequest: temperature has an effect."""
    bodies = [chat(max_tokens=30, temperature=2, seed=seed) for seed in range(4)]
    texts = {http.post(COMPLETIONS, json=body).json()["choices"][0]["message"]["content"] for body in bodies}
    assert len(texts) > 1


@pytest.mark.parametrize("same", [("developer", "system"), ("function", "tool")], ids=" as ".join)
def test_a_role_that_no_template_knows_is_read_as_its_like(same: tuple[str, str], http: httpx.Client) -> None:
    """2 Message: role `developer` and `function` are accepted."""
    replies = [http.post(COMPLETIONS, json=message(role=role, content="Be brief.")).json() for role in same]
    assert replies[0]["usage"] == replies[1]["usage"]
    assert replies[0]["choices"] == replies[1]["choices"]


def test_what_a_message_says_reaches_the_model(http: httpx.Client) -> None:
    """2 Message: content as a string and as an array of text parts say the same."""
    parts = [{"type": "text", "text": "Tell me about the river."}]
    bodies = [chat(), chat(messages=[{"role": "user", "content": parts}])]
    replies = [http.post(COMPLETIONS, json=body).json() for body in bodies]
    assert replies[0]["usage"] == replies[1]["usage"]
    assert replies[0]["choices"] == replies[1]["choices"]
