"""The AI SDK with its default OpenAI provider, which speaks the Responses API."""

from __future__ import annotations

import pytest

from tests.clients.running import ClientRun


@pytest.mark.client("ai-sdk", "`generateText` and `streamText` (Responses API)")
def test_a_text_comes_whole_and_in_pieces(client_run: ClientRun) -> None:
    found = client_run("text.mjs")
    assert found["text"] and found["usage"]["outputTokens"] > 0
    assert len(found["pieces"]) > 1 and "".join(found["pieces"])
    assert found["streamed_usage"]["outputTokens"] > 0
    assert {found["finish"], found["streamed_finish"]} <= {"stop", "length"}


@pytest.mark.client(
    "ai-sdk", "`generateText`: a second turn, which refers to the first, or repeats it (`store: false`)"
)
def test_a_conversation_goes_on_by_reference_and_without(client_run: ClientRun) -> None:
    found = client_run("conversation.mjs")
    assert found["text"] and found["repeated"] == found["referred"] > found["first"]


@pytest.mark.client("ai-sdk", "`generateText` with a tool that the SDK runs")
def test_a_tool_is_run_and_its_result_sent_back(client_run: ClientRun) -> None:
    found = client_run("tools.mjs")
    assert found["ran"] and set(found["ran"]) <= {"Berlin", "Paris"}
    first, *others = found["steps"]
    assert first["finish"] == "tool-calls" and first["results"] == ["Rain."] * len(first["calls"])
    assert len(others) == 1


@pytest.mark.client("ai-sdk", "`generateObject` with a zod schema")
def test_an_object_is_of_the_schema(client_run: ClientRun) -> None:
    found = client_run("object.mjs")
    assert found["object"]["name"] in ("Elbe", "Rhine") and found["object"]["is_long"] in (True, False)
    assert found["finish"] == "stop"


@pytest.mark.client("ai-sdk", "`embed` and `embedMany`")
def test_vectors_come_one_by_one_and_together(client_run: ClientRun) -> None:
    found = client_run("embed.mjs")
    assert len(found["many"]) == 2 and len(found["one"]) == len(found["many"][0]) > 1
    assert found["usage"]["tokens"] > 0


@pytest.mark.client("ai-sdk-anthropic", "`generateText`, `streamText`, a tool that the SDK runs")
def test_its_provider_for_anthropic_speaks_messages(client_run: ClientRun) -> None:
    found = client_run("messages.mjs", ANTHROPIC_BASE_URL=f"{client_run.url}/anthropic/v1")
    assert found["text"] and found["usage"]["outputTokens"] > 0 and found["finish"] in ("stop", "length")
    assert len(found["pieces"]) > 1 and found["streamed_usage"]["outputTokens"] > 0
    assert found["ran"] and set(found["ran"]) <= {"Berlin", "Paris"}
    assert found["steps"][0] == "tool-calls" and len(found["steps"]) == 2


@pytest.mark.client(
    "ai-sdk-compatible",
    "chat: `generateText`, `streamText`, a tool that the SDK runs, `generateObject`; `embedMany`",
)
def test_its_provider_for_others_speaks_chat(client_run: ClientRun) -> None:
    found = client_run("chat.mjs")
    assert found["text"] and found["usage"]["outputTokens"] > 0
    assert len(found["pieces"]) > 1 and found["streamed_usage"]["outputTokens"] > 0
    assert found["ran"] and set(found["ran"]) <= {"Berlin", "Paris"}
    assert found["steps"][0] == "tool-calls" and len(found["steps"]) == 2
    assert found["object"]["name"] in ("Elbe", "Rhine") and found["object"]["is_long"] in (True, False)
    assert found["sizes"][0] == found["sizes"][1] > 16
