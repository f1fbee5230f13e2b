"""Clients of chat completions, and the models that they list."""

from __future__ import annotations

import pytest

from tests.clients.running import ClientRun

# What its helper makes of the chunks.
HELPER_EVENTS = {"chunk", "content.delta", "content.done"}
# It would tell its makers that it runs.
SILENT = {"HAYSTACK_TELEMETRY_ENABLED": "False"}
# It would fetch its table of prices.
LOCAL = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}


@pytest.mark.client("openai", "chat: plain, streamed as `chunk.choices[0]`, `stream()`, `parse()`, async")
def test_openai_chats(client_run: ClientRun) -> None:
    found = client_run("chat.py")
    assert found["text"] and found["finish"] in ("stop", "length")
    assert found["streamed"] == found["final"] == found["text"]
    assert set(found["kinds"]) >= HELPER_EVENTS
    assert (
        found["usage"]["total_tokens"]
        == found["usage"]["prompt_tokens"] + found["usage"]["completion_tokens"]
    )
    assert found["usage"]["prompt_tokens_details"]["cached_tokens"] >= 0
    assert len(found["usage chunks"]) == 1
    assert list(found["parsed"]) == ["name", "is_capital"]
    assert found["concurrent"] == [found["text"]] * 3


@pytest.mark.client("openai", "chat: a function tool, required, named, its result fed back, parsed, streamed")
def test_openai_calls_a_tool(client_run: ClientRun) -> None:
    found = client_run("tools.py")
    assert (found["name"], found["finish"]) == ("Weather", "tool_calls")
    for arguments in (found["arguments"], found["parsed"], found["streamed"]):
        assert list(arguments) == ["city", "days"]
    assert found["answer"] in ("stop", "length", "tool_calls")
    assert found["pieces"] >= 1


@pytest.mark.client("openai", "`models.list()`, `models.retrieve()`, and errors by class")
def test_openai_lists_models_and_raises_its_errors(client_run: ClientRun) -> None:
    found = client_run("models.py")
    assert found["models"][:4] == ["pith-mini", "pith-small", "pith-base", "pith-wide"]
    assert found["one"] == "pith-mini"
    assert found["owned"] == ["pith"]
    assert found["wrong key"][:3] == ["AuthenticationError", 401, "invalid_api_key"]
    assert found["wrong model"][:3] == ["NotFoundError", 404, "model_not_found"]
    assert found["wrong field"][:2] == ["BadRequestError", 400] and found["wrong field"][3] == "temperature"
    assert found["too long"][:3] == ["BadRequestError", 400, "context_length_exceeded"]


@pytest.mark.client(
    "langchain", "`ChatOpenAI`: `invoke`, `stream`, `bind_tools`, `with_structured_output`; `create_agent`"
)
def test_langchain_chats_and_runs_an_agent(client_run: ClientRun) -> None:
    found = client_run("chat.py")
    assert found["text"] and found["streamed"] == found["text"] and found["chunks"] > 2
    assert found["usage"]["total_tokens"] > 0
    assert found["call"] == ["weather", ["city"]]
    assert found["answered"] == "ai"
    assert found["agent"][0] == "human" and found["agent"][-1] == "ai"
    for made in (found["structured"], found["by function"], found["agent's"]):
        assert list(made) == ["name", "is_capital"]


@pytest.mark.client("haystack", "`OpenAIChatGenerator`: plain, streamed, a tool")
def test_haystack_generates(client_run: ClientRun) -> None:
    found = client_run("components.py", **SILENT)
    assert found["text"] and found["streamed"] and found["usage"] > 0
    assert found["chunks"] > 2
    assert found["call"] == ["weather", ["city"]]


@pytest.mark.client(
    "litellm",
    "`completion`: plain, streamed, with a tool, errors by class; `get_valid_models` (provider `anthropic`)",
)
def test_litellm_completes(client_run: ClientRun) -> None:
    found = client_run("calls.py", **LOCAL)
    assert found["text"] and found["streamed"] == found["text"] and found["usage"] > 0
    assert found["call"] == ["weather", ["city"]]
    assert {"anthropic/pith-mini", "anthropic/pith-base"} <= set(found["models"])
    assert found["wrong key"] == ["AuthenticationError", 401]
    assert found["wrong model"] == ["NotFoundError", 404]
    assert found["wrong field"] == ["BadRequestError", 400]
    assert found["too long"] == ["ContextWindowExceededError", 400]


@pytest.mark.client("instructor", "an object by the default mode, TOOLS: whole, and in parts as it streams")
def test_instructor_makes_objects(client_run: ClientRun) -> None:
    found = client_run("objects.py")
    assert found["mode"] == "tool_call" and found["called"] == "City"
    assert list(found["city"]) == ["name", "is_capital"]
    some, whole = found["partial"]
    assert some and list(whole) == ["name", "is_capital"]
