"""What of a message reaches a chat template, and what is refused before."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.catalog import Capabilities
from models.errors import InvalidField, UnsupportedOption
from models.options.messages import MAX_PARTS, engine_messages
from tests.work import growth

PLAIN = Capabilities()
ABLE = Capabilities(tools=True, media=frozenset({"image_url", "input_audio", "video_url"}))
DATA = "data:image/png;base64,AAAA"
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}


def sent(message: dict[str, Any], capabilities: Capabilities = PLAIN) -> dict[str, Any]:
    (result,) = engine_messages([message], capabilities=capabilities)
    return result


def unsupported(message: dict[str, Any], capabilities: Capabilities = PLAIN) -> str:
    with pytest.raises(UnsupportedOption) as caught:
        engine_messages([{"role": "user"}, message], capabilities=capabilities)
    return caught.value.option


def invalid(message: dict[str, Any], capabilities: Capabilities = PLAIN) -> tuple[str | int, ...]:
    with pytest.raises(InvalidField) as caught:
        engine_messages([{"role": "user"}, message], capabilities=capabilities)
    return caught.value.loc


def parts(*content: Any, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": list(content)}


def test_messages_keep_their_order_and_their_text() -> None:
    conversation = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hi"}]
    assert engine_messages(conversation, capabilities=PLAIN) == tuple(conversation)


@pytest.mark.parametrize("message", [{"role": "user"}, {"role": "user", "content": None}, parts()])
def test_a_message_without_content_is_an_empty_text(message: dict[str, Any]) -> None:
    assert sent(message) == {"role": "user", "content": ""}


@pytest.mark.parametrize(
    ("role", "known", "becomes"),
    [
        ("developer", {"system", "user"}, "system"),
        ("developer", {"system", "developer", "user"}, "developer"),
        ("function", {"user", "tool"}, "tool"),
        ("function", {"function", "tool"}, "function"),
        ("user", {"user"}, "user"),
    ],
)
def test_a_role_the_template_does_not_know_takes_its_other_name(
    role: str, known: set[str], becomes: str
) -> None:
    assert sent({"role": role}, Capabilities(template_roles=frozenset(known)))["role"] == becomes


@pytest.mark.parametrize("role", ["tool", "function", "system", "developer"])
def test_a_role_without_any_known_name_is_refused(role: str) -> None:
    only_user = Capabilities(template_roles=frozenset({"user"}))
    assert unsupported({"role": role}, only_user) == "messages[1].role"


def test_a_template_without_tools_reads_earlier_calls_as_text_where_they_are_ignored() -> None:
    roles = frozenset({"system", "user", "assistant"})
    conversation = [
        {"role": "user", "content": "Where is it?"},
        {"role": "assistant", "content": None, "tool_calls": [CALL, CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "In Turin."},
        {"role": "assistant", "content": "I look again.", "function_call": CALL["function"]},
        {"role": "function", "name": "f", "content": [{"type": "text", "text": "In Oslo."}]},
        parts({"type": "text", "text": "Hm."}, role="assistant") | {"tool_calls": [CALL]},
    ]
    said, told = (
        engine_messages(conversation, capabilities=Capabilities(tools="ignore", template_roles=roles)),
        'Called f with {"a": 1}',
    )
    assert said == (
        conversation[0],
        {"role": "assistant", "content": f"{told}\n{told}"},
        {"role": "user", "content": "In Turin."},
        {"role": "assistant", "content": f"I look again.\n{told}"},
        {"role": "user", "content": [{"type": "text", "text": "In Oslo."}]},
        parts({"type": "text", "text": "Hm."}, {"type": "text", "text": told}, role="assistant"),
    )


def test_a_template_with_tools_reads_earlier_calls_as_they_were_where_they_are_ignored() -> None:
    assistant = {"role": "assistant", "tool_calls": [CALL]}
    assert sent(assistant, Capabilities(tools="ignore")) == assistant


def test_text_parts_are_kept_and_lose_what_templates_do_not_read() -> None:
    message = parts(
        {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": ""}
    )
    assert sent(message)["content"] == [{"type": "text", "text": "a"}, {"type": "text", "text": ""}]


def test_a_refusal_is_a_text_of_the_assistant_only() -> None:
    refusal = {"type": "refusal", "refusal": "no"}
    assert sent(parts(refusal, role="assistant"))["content"] == [{"type": "text", "text": "no"}]
    assert unsupported(parts(refusal)) == "messages[1].content[0]"


@pytest.mark.parametrize(
    ("part", "loc"),
    [
        ({}, ("type",)),
        ({"text": "a"}, ("type",)),
        ({"type": 1}, ("type",)),
        ({"type": "text"}, ("text",)),
        ({"type": "text", "text": None}, ("text",)),
        ({"type": "text", "text": ["a"]}, ("text",)),
        ({"type": "image_url"}, ("image_url",)),
        ({"type": "image_url", "image_url": DATA}, ("image_url",)),
        ({"type": "image_url", "image_url": {}}, ("image_url", "url")),
        ({"type": "input_audio", "input_audio": {"data": "AAAA"}}, ("input_audio", "format")),
    ],
)
def test_a_malformed_part_is_named(part: dict[str, Any], loc: tuple[str, ...]) -> None:
    assert invalid(parts({"type": "text", "text": "x"}, part), ABLE) == ("messages", 1, "content", 1, *loc)


@pytest.mark.parametrize(
    "kind", ["image_url", "input_audio", "video_url", "file", "image_embeds", "prompt_embeds", "x" * 999]
)
def test_parts_that_the_model_does_not_take_are_refused_by_name(kind: str) -> None:
    assert unsupported(parts({"type": "text", "text": "x"}, {"type": kind})) == "messages[1].content[1]"


def test_inline_media_reach_a_model_that_takes_them_with_nothing_else() -> None:
    image = {"type": "image_url", "image_url": {"url": DATA, "detail": "low", "x": 1}, "uuid": "other"}
    audio = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    assert sent(parts(image, audio), ABLE)["content"] == [
        {"type": "image_url", "image_url": {"url": DATA, "detail": "low"}},
        audio,
    ]


@pytest.mark.parametrize(
    "url", ["http://10.0.0.1/", "https://example.com/a.png", "file:///etc/passwd", "", "DATA:x"]
)
@pytest.mark.parametrize("kind", ["image_url", "video_url"])
def test_no_url_is_ever_fetched(url: str, kind: str) -> None:
    option = unsupported(parts({"type": kind, kind: {"url": url}}), ABLE)
    assert option == f"messages[1].content[0].{kind}.url"


def test_named_properties_go_on_as_text() -> None:
    message = {"role": "tool", "content": "4", "name": "f", "tool_call_id": "c1", "reasoning_content": "r"}
    assert sent(message) == message
    assert invalid({"role": "user", "name": 1}) == ("messages", 1, "name")
    assert invalid({"role": "user", "name": "n" * 257}) == ("messages", 1, "name")
    assert invalid({"role": "tool", "tool_call_id": {}}) == ("messages", 1, "tool_call_id")


def test_calls_stand_in_place_of_content() -> None:
    assert sent({"role": "assistant", "content": None, "tool_calls": [CALL]}) == {
        "role": "assistant",
        "tool_calls": [CALL],
    }
    assert sent({"role": "assistant", "content": "so", "tool_calls": [CALL]})["content"] == "so"
    assert sent({"role": "assistant", "content": "so", "tool_calls": []}) == {
        "role": "assistant",
        "content": "so",
    }


KNOWN = {"role", "content", "name", "tool_call_id", "reasoning", "reasoning_content", "tool_calls"}
JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)
ROLES = st.sampled_from(["system", "developer", "user", "assistant", "tool", "function"])
KEYS = st.sampled_from(
    [*sorted(KNOWN - {"role", "content", "tool_calls"}), "function_call", "refusal", "audio"]
)


@given(
    role=ROLES,
    extra=st.dictionaries(st.text(max_size=6) | KEYS, JSON, max_size=6),
    content=st.none()
    | st.text(max_size=5)
    | st.lists(st.dictionaries(st.text(max_size=5), JSON, max_size=3), max_size=2),
)
def test_no_unknown_property_is_ever_forwarded(role: str, extra: dict[str, Any], content: Any) -> None:
    message = {**extra, "role": role, "content": content}
    message.pop("tool_calls", None)
    try:
        result = sent(message, ABLE)
    except (UnsupportedOption, InvalidField):
        return
    assert set(result) <= KNOWN
    assert all(set(part) <= {"type", "text"} for part in result.get("content", ()) if isinstance(part, dict))


EMPTY = {"type": "text", "text": ""}


def test_the_parts_of_a_message_and_of_all_messages_are_bounded() -> None:
    def place(*counts: int) -> tuple[str | int, ...]:
        with pytest.raises(InvalidField, match="at most 512 parts in a message, and 2048 in all") as caught:
            engine_messages([parts(*[EMPTY] * count) for count in counts], capabilities=PLAIN)
        return caught.value.loc

    assert len(sent(parts(*[EMPTY] * MAX_PARTS))["content"]) == MAX_PARTS
    assert place(MAX_PARTS + 1) == ("messages", 0, "content")
    assert place(1, 240_000) == ("messages", 1, "content")
    engine_messages([parts(*[EMPTY] * MAX_PARTS)] * 4, capabilities=PLAIN)
    assert place(*[MAX_PARTS] * 4, 1) == ("messages", 4, "content")


def test_the_cost_of_reading_messages_grows_as_they_do() -> None:
    def work(size: int) -> Callable[[], Any]:
        call = {**CALL, "function": {"name": "f", "arguments": "[" + "0," * 30 + "0]"}}
        talk = [
            parts(*[EMPTY] * (size // 64)),
            {"role": "assistant", "tool_calls": [call] * (size // 128)},
        ] * 4
        return lambda: engine_messages(talk, capabilities=ABLE)

    assert growth(work, 4096) < 1.2
