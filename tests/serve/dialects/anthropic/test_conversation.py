"""Anthropic's blocks as chat messages, tools and options; and what cannot be one, with its place."""

from typing import Any

import pytest

from models.catalog import Capabilities, ChatModel
from models.errors import InvalidField, UnsupportedOption
from serve.dialects.anthropic.message import AskedMessage, asked_message
from serve.dialects.anthropic.request import AnthropicRequest
from serve.http.request_body import check_shape

CALL = {"type": "tool_use", "id": "t1", "name": "look", "input": {"a": 1}}
TOOL = {"name": "look", "description": "Looks.", "input_schema": {"properties": {"a": {"type": "integer"}}}}
DEFERRED = {"name": "later", "input_schema": {}, "defer_loading": True}


def model(**capabilities: Any) -> ChatModel:
    return ChatModel("m", "M", "", 1000, 1, 1, 0, True, capabilities=Capabilities(tools=True, **capabilities))


def asked(
    *messages: dict[str, Any], reasons: bool = False, media: tuple[str, ...] = ("image_url",), **fields: Any
) -> AskedMessage:
    body = check_shape({"messages": list(messages), "max_tokens": 9, **fields}, AnthropicRequest)
    return asked_message(body, model(reasoning_effort=reasons, media=frozenset(media)))


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content[0] if isinstance(content[0], str) else list(content)}


def text(said: str, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **fields}


def test_a_conversation_with_tools_is_the_chats() -> None:
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [text("4"), text("2")]}
    found = asked(
        user("Hi"),
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, text("Let me see."), CALL]},
        user(result, text("And now?", cache_control={"type": "ephemeral"})),
        system=[text("x-anthropic-billing-header: 1"), text("Be brief."), text("Be kind.")],
    ).messages
    assert found == [
        {"role": "system", "content": "Be brief.\nBe kind."},
        {"role": "user", "content": "Hi"},
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [
                {"id": "t1", "type": "function", "function": {"name": "look", "arguments": '{"a":1}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "t1", "content": [text("4"), text("2")]},
        {"role": "user", "content": "And now?"},
    ]


def test_instructions_stay_where_they_are_given_and_users_turns_are_one() -> None:
    middle = {"role": "system", "content": [text("It is noon.")]}
    found = asked({"role": "system", "content": "First."}, user("Hi"), middle, user(text("So?"))).messages
    assert [message["role"] for message in found] == ["system", "user"]
    assert found[1]["content"] == [text("Hi"), text("It is noon."), text("So?")]


@pytest.mark.parametrize(
    ("content", "said"),
    [("no such file", "Error: no such file"), ([text("no")], "Error: no"), (None, "Error: ")],
)
def test_a_failed_tool_says_so(content: Any, said: str) -> None:
    result = {"type": "tool_result", "tool_use_id": "t1", "content": content, "is_error": True}
    assert asked(user(result)).messages == [{"role": "tool", "tool_call_id": "t1", "content": said}]


def test_images_and_documents_are_parts_and_a_tools_images_follow_its_result() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    document = {"type": "document", "title": "T", "source": {"type": "text", "data": "said"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [text("seen"), image]}
    tool, asking = asked(user(result, document)).messages
    assert tool["content"] == "seen"
    assert asking["content"] == [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        text("T\nsaid"),
    ]


@pytest.mark.parametrize(
    ("choice", "options"),
    [
        ({"type": "auto"}, {"tool_choice": "auto"}),
        ({"type": "any"}, {"tool_choice": "required"}),
        ({"type": "none"}, {"tool_choice": "none"}),
        (
            {"type": "tool", "name": "look", "disable_parallel_tool_use": True},
            {
                "tool_choice": {"type": "function", "function": {"name": "look"}},
                "parallel_tool_calls": False,
            },
        ),
    ],
)
def test_tools_and_their_choice(choice: dict[str, Any], options: dict[str, Any]) -> None:
    found = asked(user("Hi"), tools=[{**TOOL, "type": "custom"}], tool_choice=choice).options
    parameters = {"type": "object", **TOOL["input_schema"]}  # type: ignore[dict-item]
    function = {"name": "look", "description": "Looks.", "parameters": parameters}
    assert found == {"tools": [{"type": "function", "function": function}], **options}


def test_a_tool_that_is_kept_back_is_offered_once_it_was_found() -> None:
    def names(*messages: dict[str, Any]) -> list[str]:
        tools = asked(*messages, tools=[TOOL, DEFERRED]).options["tools"]
        return [tool["function"]["name"] for tool in tools]

    found = [{"type": "tool_reference", "tool_name": "later"}]
    assert names(user("Hi")) == ["look"]
    assert names(user({"type": "tool_result", "tool_use_id": "t", "content": found})) == ["look", "later"]


def test_options_are_the_chats_and_unknown_ones_have_no_effect() -> None:
    found = asked(
        user("Hi"),
        max_tokens=32_000,
        stop_sequences=["END"],
        temperature=1,
        top_k=5,
        metadata={"user_id": "u"},
        context_management={"edits": []},
        thinking={"type": "adaptive"},
        output_config={"effort": "high", "format": {"type": "json_schema", "schema": {"type": "object"}}},
    )
    assert (found.token_limit, found.token_limit_field) == (1000, None)
    form = {"type": "json_schema", "json_schema": {"name": "output", "schema": {"type": "object"}}}
    assert found.options == {"temperature": 1, "top_k": 5, "stop": ["END"], "response_format": form}


@pytest.mark.parametrize(
    ("fields", "effort"),
    [
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "low"),
        ({"thinking": {"type": "enabled", "budget_tokens": 5000}}, "medium"),
        ({"thinking": {"type": "enabled", "budget_tokens": 32_000}}, "high"),
        ({"thinking": {"type": "disabled"}}, "low"),
        ({"thinking": {"type": "adaptive"}}, None),
        ({"output_config": {"effort": "max"}}, "max"),
        ({"output_config": {"effort": "a new one"}}, None),
    ],
)
def test_a_model_that_reasons_is_told_how_much(fields: dict[str, Any], effort: str | None) -> None:
    assert asked(user("Hi"), reasons=True, **fields).options.get("reasoning_effort") == effort
    assert "reasoning_effort" not in asked(user("Hi"), **fields).options


@pytest.mark.parametrize(
    ("message", "fields", "place"),
    [
        (user({"type": "text"}), {}, ("messages", 0, "content", 0, "text")),
        (user({"type": "image", "source": 3}), {}, ("messages", 0, "content", 0, "source")),
        (user({"type": "tool_result"}), {}, ("messages", 0, "content", 0, "tool_use_id")),
        (
            {"role": "assistant", "content": [{**CALL, "input": 3}]},
            {},
            ("messages", 0, "content", 0, "input"),
        ),
        (user("Hi"), {"tools": [{"name": "a b", "input_schema": {}}]}, ("tools", 0, "name")),
        (user("Hi"), {"tools": [{"name": "a"}]}, ("tools", 0, "input_schema")),
        (user({"type": "video"}), {}, "messages.0.content.0"),
        (user("Hi"), {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools.0.type"),
        (user("Hi"), {"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
    ],
)
def test_what_cannot_be_asked_is_named(message: Any, fields: Any, place: Any) -> None:
    kind = UnsupportedOption if isinstance(place, str) else InvalidField
    with pytest.raises(kind) as refused:
        asked(message, **fields)
    error: Any = refused.value
    assert (error.option if isinstance(place, str) else error.loc) == place


@pytest.mark.parametrize("within", [False, True])
def test_an_image_is_refused_under_its_own_name_and_place(within: bool) -> None:
    image: Any = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [text("seen"), image]}
    turn = user(text("Look."), result if within else image)
    with pytest.raises(UnsupportedOption) as refused:
        asked(turn, media=())
    place = "messages.0.content.1.content.1" if within else "messages.0.content.1"
    assert str(refused.value) == f"{place}: this model does not accept blocks of type image"


def test_an_image_elsewhere_is_not_fetched() -> None:
    image = {"type": "image", "source": {"type": "url", "url": "http://169.254.169.254/"}}
    with pytest.raises(UnsupportedOption) as refused:
        asked(user(image))
    assert refused.value.option == "messages.0.content.0.source.url"
    assert refused.value.reason == "nothing is fetched; send the data as base64"


def test_an_error_of_the_chat_is_told_at_the_callers_own_place() -> None:
    found = asked(user("Hi"), {"role": "assistant", "content": [CALL]}, user("Well?"), system="Brief.")
    moved = found.renamed(InvalidField(("messages", 2, "tool_calls", 0), "no"))
    assert isinstance(moved, InvalidField) and moved.loc == ("messages", 1, "content")
    refused = found.renamed(UnsupportedOption("messages[3].content[0]", "no images"))
    assert isinstance(refused, UnsupportedOption) and refused.option == "messages.2.content"
    schema = found.renamed(InvalidField(("tools", 0, "function", "parameters", "type"), "no"))
    assert isinstance(schema, InvalidField) and schema.loc == ("tools", 0, "input_schema", "type")
