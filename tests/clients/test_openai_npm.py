"""The `openai` npm client at its defaults."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tests.clients.running import ClientRun


def is_river(found: dict[str, Any]) -> bool:
    """Of the schema that the scripts ask for."""
    return found["name"] in ("Elbe", "Rhine") and found["is_long"] in (True, False)


@pytest.mark.client("openai-node", "chat: a reply, a stream with and without usage, the stream helper")
def test_a_stream_is_the_reply_in_pieces(client_run: ClientRun) -> None:
    found = client_run("chat.mjs")
    assert found["text"] and found["object"] == "chat.completion"
    assert len(found["pieces"]) > 1
    assert (
        "".join(found["pieces"])
        == found["unasked"]
        == "".join(found["told"])
        == found["final"]
        == found["text"]
    )
    assert found["streamed_usage"]["completion_tokens"] == found["usage"]["completion_tokens"] > 0
    assert found["usage"]["prompt_tokens_details"]["cached_tokens"] >= 0


@pytest.mark.client("openai-node", "chat: `parse` with a zod schema")
def test_a_reply_is_an_object_of_the_schema(client_run: ClientRun) -> None:
    assert is_river(client_run("parse.mjs"))


@pytest.mark.client("openai-node", "chat: tools, required, streamed, results fed back, `runTools`")
def test_tools_are_called_and_their_results_taken(client_run: ClientRun) -> None:
    found = client_run("tools.mjs")
    assert found["finish"] == "tool_calls"
    assert [call["function"]["name"] for call in found["calls"]] == ["weather"] * len(found["calls"])
    assert found["answer"]["role"] == "assistant"
    assert set(found["ran"]) <= {"Berlin", "Paris"} and found["ran"]
    assert found["roles"][:3] == ["user", "assistant", "tool"]
    assert json.loads(found["streamed"]["function"]["arguments"])["city"] in ("Berlin", "Paris")


@pytest.mark.client("openai-node", "`models.list`, `models.retrieve`, and errors by class")
def test_models_are_listed_and_errors_have_their_class(client_run: ClientRun, models: dict[str, str]) -> None:
    found = client_run("models.mjs")
    assert found["listed"][0]["id"] == models["chat"] == found["one"]["id"]
    assert all(model["object"] == "model" for model in found["listed"])
    errors = {name: (found[name]["name"], found[name]["status"], found[name]["code"]) for name in ERRORS}
    assert errors == ERRORS
    assert all(found[name]["requestID"] and found[name]["message"] for name in ERRORS)
    assert found["bad_option"]["param"] == "temperature"


ERRORS = {
    "unknown_model": ("NotFoundError", 404, "model_not_found"),
    "wrong_key": ("AuthenticationError", 401, "invalid_api_key"),
    "bad_option": ("BadRequestError", 400, "invalid_body"),
    "too_long": ("BadRequestError", 400, "context_length_exceeded"),
}


@pytest.mark.client(
    "openai-node", "responses: a reply, `parse`, events in a stream, a function call and its result"
)
def test_responses_stream_parse_and_call_functions(client_run: ClientRun) -> None:
    found = client_run("responses.mjs")
    assert found["text"] and found["usage"]["output_tokens"] > 0
    assert is_river(found["parsed"])
    assert found["events"][0] == "response.created" and found["events"][-1] in (
        "response.completed",
        "response.incomplete",
    )
    assert len(found["pieces"]) > 1 and "".join(found["pieces"]) == found["streamed_text"]
    assert found["streamed_usage"]["output_tokens"] > 0
    assert [call["name"] for call in found["calls"]] == ["weather"] * len(found["calls"]) != []
    assert found["answered"] in ("completed", "incomplete")


@pytest.mark.client("openai-node", "embeddings, as floats and as the SDK asks by default")
def test_embeddings_are_the_same_by_either_encoding(client_run: ClientRun) -> None:
    found = client_run("embeddings.mjs")
    assert [len(vector) for vector in found["floats"]] == [len(vector) for vector in found["by_default"]]
    for plain, decoded in zip(found["floats"], found["by_default"], strict=True):
        assert all(math.isclose(one, other, abs_tol=1e-6) for one, other in zip(plain, decoded, strict=True))
    assert found["usage"]["prompt_tokens"] > 0


@pytest.mark.client("openai-node", "files and batches: a batch of chats, its output and its errors")
def test_a_batch_is_worked_off(client_run: ClientRun) -> None:
    found = client_run("batches.mjs")
    assert found["file"]["purpose"] == "batch" and found["listed"]
    assert found["batch"]["status"] == "completed"
    assert found["batch"]["request_counts"] == {"total": 3, "completed": 2, "failed": 1}
    assert {line["custom_id"] for line in found["output"]} == {"first", "second"}
    assert all(line["response"]["body"]["object"] == "chat.completion" for line in found["output"])
    assert [line["custom_id"] for line in found["errors"]] == ["wrong"]
