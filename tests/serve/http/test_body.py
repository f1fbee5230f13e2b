"""Bad bodies: each names what was wrong and where, and none gets past as something else (contract, section 7)."""

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.catalog import Capabilities
from models.errors import InvalidField, UnsupportedOption
from models.options.messages import engine_messages
from models.options.options import select_options
from serve.chat.request import ChatCompletionRequest
from serve.chat.route import Usage
from serve.http.request_body import (
    ABSENT,
    MAX_INPUT_CHARS,
    MAX_TOKEN_IDS,
    MAX_VALUES,
    InvalidBody,
    Issue,
    check_shape,
    parse_body,
    parse_json,
)
from serve.retrieval.requests import EmbeddingRequest

HI = {"role": "user", "content": "hi"}
JSON = "application/json"


def parse_chat_request(raw: bytes, content_type: str | None) -> ChatCompletionRequest:
    return parse_body(raw, content_type, ChatCompletionRequest)


def refused(raw: bytes, content_type: str | None = JSON) -> tuple[Issue, ...]:
    with pytest.raises(InvalidBody) as caught:
        parse_chat_request(raw, content_type)
    return caught.value.issues


def body(**fields: Any) -> bytes:
    return json.dumps({"messages": [HI], **fields}).encode()


def with_message(**fields: Any) -> dict[str, Any]:
    return {"messages": [HI, fields]}


TOOL = {"type": "function", "function": {"name": "f"}}
DEEP = json.loads("[" * 150 + "]" * 150)

# What is wrong, the path to it below "body", and the kind of issue.
BAD_FIELDS: list[tuple[dict[str, Any], tuple[str | int, ...], str]] = [
    ({"messages": None}, ("messages",), "missing"),
    ({"messages": []}, ("messages",), "too_short"),
    ({"messages": [HI] * 257}, ("messages",), "too_long"),
    ({"messages": "hi"}, ("messages",), "list_type"),
    ({"messages": HI}, ("messages",), "list_type"),
    ({"messages": 1}, ("messages",), "list_type"),
    ({"messages": ["hi"]}, ("messages", 0), "model_type"),
    ({"messages": [None]}, ("messages", 0), "model_type"),
    ({"messages": [[]]}, ("messages", 0), "model_type"),
    (with_message(content="x"), ("messages", 1, "role"), "missing"),
    (with_message(role=None, content="x"), ("messages", 1, "role"), "literal_error"),
    (with_message(role="User", content="x"), ("messages", 1, "role"), "literal_error"),
    (with_message(role="bot", content="x"), ("messages", 1, "role"), "literal_error"),
    (with_message(role=1, content="x"), ("messages", 1, "role"), "literal_error"),
    (with_message(role=["user"], content="x"), ("messages", 1, "role"), "literal_error"),
    (with_message(role="user", content=1), ("messages", 1, "content"), "content_type"),
    (with_message(role="user", content=True), ("messages", 1, "content"), "content_type"),
    (with_message(role="user", content={"type": "text"}), ("messages", 1, "content"), "content_type"),
    (with_message(role="user", content=["x"]), ("messages", 1, "content", 0), "dict_type"),
    (with_message(role="user", content=[{}, 1]), ("messages", 1, "content", 1), "dict_type"),
    (with_message(role="user", content=[None]), ("messages", 1, "content", 0), "dict_type"),
    (with_message(role="assistant", tool_calls={}), ("messages", 1, "tool_calls"), "list_type"),
    (with_message(role="assistant", tool_calls="f"), ("messages", 1, "tool_calls"), "list_type"),
    (with_message(role="assistant", tool_calls=["f"]), ("messages", 1, "tool_calls", 0), "dict_type"),
    ({"model": 1}, ("model",), "string_type"),
    ({"model": ["m"]}, ("model",), "string_type"),
    ({"model": "m" * 257}, ("model",), "string_too_long"),
    ({"max_tokens": 0}, ("max_tokens",), "greater_than_equal"),
    ({"max_tokens": -1}, ("max_tokens",), "greater_than_equal"),
    ({"max_tokens": 16_385}, ("max_tokens",), "less_than_equal"),
    ({"max_tokens": 10**400}, ("max_tokens",), "less_than_equal"),
    ({"max_tokens": "5"}, ("max_tokens",), "int_type"),
    ({"max_tokens": 5.0}, ("max_tokens",), "int_type"),
    ({"max_tokens": True}, ("max_tokens",), "int_type"),
    ({"max_tokens": [5]}, ("max_tokens",), "int_type"),
    ({"max_completion_tokens": 0}, ("max_completion_tokens",), "greater_than_equal"),
    ({"max_completion_tokens": 16_385}, ("max_completion_tokens",), "less_than_equal"),
    ({"max_completion_tokens": "5"}, ("max_completion_tokens",), "int_type"),
    ({"temperature": -0.001}, ("temperature",), "greater_than_equal"),
    ({"temperature": 2.001}, ("temperature",), "less_than_equal"),
    ({"temperature": "1"}, ("temperature",), "float_type"),
    ({"temperature": True}, ("temperature",), "float_type"),
    ({"temperature": {}}, ("temperature",), "float_type"),
    ({"temperature": 10**400}, ("temperature",), "float_type"),
    ({"stream": "true"}, ("stream",), "bool_type"),
    ({"stream": 1}, ("stream",), "bool_type"),
    ({"stream_options": {}}, ("stream_options",), "needs_stream"),
    ({"stream": True, "stream_options": []}, ("stream_options",), "model_type"),
    (
        {"stream": True, "stream_options": {"include_usage": 1}},
        ("stream_options", "include_usage"),
        "bool_type",
    ),
    ({"top_p": -0.1}, ("top_p",), "greater_than_equal"),
    ({"top_p": 1.1}, ("top_p",), "less_than_equal"),
    ({"top_p": "1"}, ("top_p",), "float_type"),
    ({"top_k": -2}, ("top_k",), "greater_than_equal"),
    ({"top_k": 2**31}, ("top_k",), "less_than_equal"),
    ({"top_k": 1.5}, ("top_k",), "int_type"),
    ({"min_p": -0.1}, ("min_p",), "greater_than_equal"),
    ({"min_p": 1.1}, ("min_p",), "less_than_equal"),
    ({"n": 0}, ("n",), "greater_than_equal"),
    ({"n": 9}, ("n",), "less_than_equal"),
    ({"n": "2"}, ("n",), "int_type"),
    ({"stop": 1}, ("stop",), "stop_type"),
    ({"stop": ""}, ("stop",), "string_too_short"),
    ({"stop": "x" * 1025}, ("stop",), "string_too_long"),
    ({"stop": ["a"] * 5}, ("stop",), "too_long"),
    ({"stop": ["a", ""]}, ("stop", 1), "string_too_short"),
    ({"stop": ["a", 1]}, ("stop", 1), "string_type"),
    ({"seed": 2**63}, ("seed",), "less_than_equal"),
    ({"seed": -(2**63) - 1}, ("seed",), "greater_than_equal"),
    ({"seed": "x"}, ("seed",), "int_type"),
    ({"presence_penalty": 2.1}, ("presence_penalty",), "less_than_equal"),
    ({"presence_penalty": -2.1}, ("presence_penalty",), "greater_than_equal"),
    ({"frequency_penalty": 2.1}, ("frequency_penalty",), "less_than_equal"),
    ({"frequency_penalty": "0"}, ("frequency_penalty",), "float_type"),
    ({"repetition_penalty": 0}, ("repetition_penalty",), "greater_than_equal"),
    ({"repetition_penalty": 10.1}, ("repetition_penalty",), "less_than_equal"),
    ({"logit_bias": []}, ("logit_bias",), "dict_type"),
    ({"logit_bias": {"7": 100.5}}, ("logit_bias", "7"), "less_than_equal"),
    ({"logit_bias": {"7": -101}}, ("logit_bias", "7"), "greater_than_equal"),
    ({"logit_bias": {"7": "1"}}, ("logit_bias", "7"), "float_type"),
    ({"logit_bias": {"hello": 1}}, ("logit_bias", "hello"), "string_pattern_mismatch"),
    ({"logit_bias": {"-1": 1}}, ("logit_bias", "-1"), "string_pattern_mismatch"),
    ({"logit_bias": {str(i): 1 for i in range(1025)}}, ("logit_bias",), "too_long"),
    ({"logprobs": 1}, ("logprobs",), "bool_type"),
    ({"top_logprobs": 1}, ("top_logprobs",), "needs_logprobs"),
    ({"logprobs": False, "top_logprobs": 1}, ("top_logprobs",), "needs_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, ("top_logprobs",), "less_than_equal"),
    ({"logprobs": True, "top_logprobs": -1}, ("top_logprobs",), "greater_than_equal"),
    ({"response_format": "json"}, ("response_format",), "model_type"),
    ({"response_format": {}}, ("response_format", "type"), "missing"),
    ({"response_format": {"type": "xml"}}, ("response_format", "type"), "literal_error"),
    ({"response_format": {"type": "json_schema"}}, ("response_format", "json_schema"), "missing"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}},
        ("response_format", "json_schema", "schema"),
        "missing",
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a b", "schema": {}}}},
        ("response_format", "json_schema", "name"),
        "string_pattern_mismatch",
    ),
    ({"tools": {}}, ("tools",), "list_type"),
    ({"tools": [TOOL] * 129}, ("tools",), "too_long"),
    ({"tools": ["f"]}, ("tools", 0), "model_type"),
    ({"tools": [{"function": {"name": "f"}}]}, ("tools", 0, "type"), "missing"),
    ({"tools": [TOOL, {"type": "function"}]}, ("tools", 1, "function"), "missing"),
    ({"tools": [{"type": "function", "function": {}}]}, ("tools", 0, "function", "name"), "missing"),
    (
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]},
        ("tools", 0, "function", "parameters"),
        "dict_type",
    ),
    ({"tool_choice": "any"}, ("tool_choice",), "literal_error"),
    ({"tool_choice": 1}, ("tool_choice",), "literal_error"),
    ({"tool_choice": {}}, ("tool_choice", "type"), "missing"),
    ({"tool_choice": {"type": "function"}}, ("tool_choice", "function"), "missing"),
    ({"tool_choice": {"type": "function", "function": {}}}, ("tool_choice", "function", "name"), "missing"),
    ({"parallel_tool_calls": "yes"}, ("parallel_tool_calls",), "bool_type"),
    ({"reasoning_effort": "huge"}, ("reasoning_effort",), "literal_error"),
    ({"min_tokens": -1}, ("min_tokens",), "greater_than_equal"),
    ({"min_tokens": 16_385}, ("min_tokens",), "less_than_equal"),
    ({"min_tokens": 513}, ("min_tokens",), "above_max_tokens"),
    ({"max_tokens": 900, "max_completion_tokens": 9, "min_tokens": 10}, ("min_tokens",), "above_max_tokens"),
    ({"ignore_eos": "no"}, ("ignore_eos",), "bool_type"),
    ({"temperature": DEEP}, ("temperature",), "float_type"),
]


@pytest.mark.parametrize(("fields", "loc", "kind"), BAD_FIELDS)
def test_a_bad_field_is_one_issue_that_names_it(
    fields: dict[str, Any], loc: tuple[str | int, ...], kind: str
) -> None:
    (issue,) = refused(body(**fields))
    assert issue.loc == ("body", *loc)
    assert issue.type == kind
    assert issue.msg
    json.dumps(issue.as_dict(), allow_nan=False)


# The text, the kind, the byte it points at, and a word of what it says.
MALFORMED: list[tuple[bytes, str, int, str]] = [
    (b"{", "json_invalid", 0, "EOF"),
    (b'{"messages": [', "json_invalid", 13, "EOF"),
    (b"nonsense", "json_invalid", 1, "expected"),
    (b"{'messages': []}", "json_invalid", 1, "key must be a string"),
    (b'{"messages": [],}', "json_invalid", 16, "trailing comma"),
    (b'{"a": 1} x', "json_invalid", 9, "trailing characters"),
    (b'{"a": 1}{"a": 1}', "json_invalid", 8, "trailing characters"),
    (b'{"a" 1}', "json_invalid", 5, "expected `:`"),
    (b'{"a": 01}', "json_invalid", 7, "invalid number"),
    (b'{"temperature": NaN}', "json_invalid", 16, "NaN and Infinity"),
    (b'{"temperature": Infinity}', "json_invalid", 16, "NaN and Infinity"),
    (b'{"temperature": -Infinity}', "json_invalid", 17, "NaN and Infinity"),
    (b'{"a": "\xff"}', "json_invalid", 7, "UTF-8"),
    (b'{"a": "\xc3"}', "json_invalid", 7, "UTF-8"),
    (b'{"a": "\\ud800"}', "json_invalid", 13, "hex escape"),
    (b'{"a": "\x00"}', "json_invalid", 7, "control character"),
    (b"\xef\xbb\xbf{}", "json_invalid", 0, "byte order mark"),
    ('{"a": 1}'.encode("utf-16"), "json_invalid", 0, "expected value"),
    (b'{\n "a": 1,\n "b": x\n}', "json_invalid", 17, "line 3"),
    (b"[" * 5000, "json_too_deep", 201, "nested deeper than 200"),
    (b'{"a":' * 5000, "json_too_deep", 1005, "nested deeper than 200"),
    (b'{"a": ' + b"9" * 5000 + b"}", "json_invalid", 4307, "number out of range"),
]


@pytest.mark.parametrize(("raw", "kind", "offset", "words"), MALFORMED)
def test_malformed_json_says_what_and_at_which_byte(raw: bytes, kind: str, offset: int, words: str) -> None:
    (issue,) = refused(raw)
    assert (issue.type, issue.loc) == (kind, ("body", offset))
    assert words in issue.msg
    assert issue.ctx is not None and issue.ctx["offset"] == offset


@pytest.mark.parametrize("raw", [b"", b" \n\t"])
def test_an_empty_body_is_called_empty(raw: bytes) -> None:
    (issue,) = refused(raw)
    assert (issue.type, issue.loc) == ("missing", ("body",))
    assert "empty" in issue.msg


@pytest.mark.parametrize("raw", [b"[]", b'"hi"', b"1", b"true", b"null"])
def test_a_body_that_is_no_object_is_told_so(raw: bytes) -> None:
    (issue,) = refused(raw)
    assert (issue.type, issue.loc, issue.msg) == ("model_type", ("body",), "Input should be an object")


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "",
        "application/json",
        "APPLICATION/JSON",
        "application/json; charset=utf-8",
        'application/json;charset="UTF-8"',
        "application/vnd.api+json",
    ],
)
def test_json_content_types_are_taken_and_so_is_none_at_all(content_type: str | None) -> None:
    assert parse_chat_request(body(), content_type).messages[0].content == "hi"


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/jsonp",
        "application/json; charset=latin-1",
        "application/json; charset=utf-16",
        "json",
    ],
)
def test_other_content_types_are_refused(content_type: str) -> None:
    (issue,) = refused(body(), content_type)
    assert (issue.type, issue.loc, issue.input) == ("content_type", ("header", "content-type"), content_type)


def test_of_duplicate_keys_the_last_one_counts() -> None:
    assert (
        parse_chat_request(
            b'{"max_tokens": 1, "max_tokens": 2, "messages": [{"role": "user"}]}', JSON
        ).max_tokens
        == 2
    )


def test_a_number_that_overflows_to_infinity_is_refused_where_a_number_is_meant() -> None:
    (issue,) = refused(b'{"messages": [{"role": "user"}], "temperature": 1e999}')
    assert (issue.type, issue.loc) == ("finite_number", ("body", "temperature"))
    assert issue.input is ABSENT


def test_at_most_twenty_issues_are_reported() -> None:
    assert len(refused(body(messages=[{"role": "x"}] * 256))) == 20


def test_several_issues_come_in_the_order_of_the_contract() -> None:
    locs = [issue.loc[1] for issue in refused(body(stream=1, temperature=9, max_tokens=0))]
    assert locs == ["max_tokens", "temperature", "stream"]


def test_a_short_input_is_echoed_and_a_prompt_never_is() -> None:
    assert refused(body(max_tokens="many"))[0].input == "many"
    fits, too_long = "x" * (MAX_INPUT_CHARS - 2), "x" * (MAX_INPUT_CHARS - 1)
    assert refused(body(max_tokens=fits))[0].input == fits
    assert refused(body(max_tokens=too_long))[0].input is ABSENT
    assert refused(body(max_tokens={"a": [too_long]}))[0].input is ABSENT
    secret = "my secret prompt"
    issues = refused(json.dumps({"model": "m", "prompt": secret}).encode())
    assert secret not in json.dumps([issue.as_dict() for issue in issues])


def test_a_long_key_is_cut_in_the_path() -> None:
    (issue,) = refused(body(logit_bias={"k" * 10_000: 1}))
    assert issue.loc == ("body", "logit_bias", "k" * 64 + "…")


@pytest.mark.parametrize(
    "raw",
    [
        b'{"messages": [' + b"1," * 2_000_000 + b"1]}",
        b'{"messages": [{"role": "user", "content": [' + b"1," * 2_000_000 + b"1]}]}",
        b'{"messages": [{"role": "user", "tool_calls": [' + b"1," * 2_000_000 + b"1]}]}",
        b'{"messages": [{"role": "user"}], "stop": [' + b"1," * 2_000_000 + b"1]}",
        b'{"messages": [{"role": "user"}], "tools": [' + b"1," * 2_000_000 + b"1]}",
        b"\n" * 4_000_000 + b"x",
    ],
    ids=["messages", "parts", "tool_calls", "stop", "tools", "lines"],
)
def test_a_body_of_millions_of_bad_items_costs_little(raw: bytes) -> None:
    started_s = time.process_time()
    assert len(refused(raw)) <= 20
    # Measured at 0.05 to 0.2 s; an issue for each item takes many seconds and gigabytes.
    assert time.process_time() - started_s < 2


def test_other_routes_parse_their_own_shapes() -> None:
    usage = parse_body(b'{"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}', JSON, Usage)
    assert usage.total_tokens == 3
    with pytest.raises(InvalidBody, match=r"body\.total_tokens: Field required"):
        parse_body(b'{"prompt_tokens": 1, "completion_tokens": 2}', JSON, Usage)


NAMES = st.sampled_from(
    [
        "messages",
        "model",
        "max_tokens",
        "temperature",
        "stream",
        "stop",
        "tools",
        "tool_choice",
        "response_format",
        "logit_bias",
        "n",
        "role",
        "content",
        "tool_calls",
        "type",
        "function",
        "name",
        "json_schema",
        "schema",
        "text",
        "parameters",
        "store",
        "modalities",
        "chat_template_kwargs",
        "stream_options",
        "top_logprobs",
        "min_tokens",
        "function_call",
        "arguments",
        "pattern",
    ]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["user", "assistant", "function", "json_schema", "text", "tool"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(NAMES | st.text(max_size=4), inner, max_size=5)
    ),
)


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_an_invalid_body(raw: bytes) -> None:
    try:
        parse_chat_request(raw, None)
    except InvalidBody as error:
        json.dumps([issue.as_dict() for issue in error.issues], allow_nan=False)


@settings(max_examples=150)
@given(VALUES, st.booleans())
def test_any_json_is_a_request_that_can_be_judged_or_an_invalid_body(value: Any, as_fields: bool) -> None:
    if as_fields and isinstance(value, dict):
        value = {"messages": [HI], **value}
    try:
        request = parse_chat_request(json.dumps(value).encode(), JSON)
    except InvalidBody as error:
        assert 1 <= len(error.issues) <= 20
        assert all(issue.loc[0] == "body" for issue in error.issues)
        json.dumps([issue.as_dict() for issue in error.issues], allow_nan=False)
        return
    everything = Capabilities(tools=True, reasoning_effort=True, media=frozenset({"image_url"}))
    try:
        select_options(request.option_fields(), capabilities=everything)
        engine_messages(request.message_fields(), capabilities=everything)
    except (UnsupportedOption, InvalidField):
        pass


def test_a_body_of_a_million_values_is_refused_before_it_is_parsed() -> None:
    for many in (
        b"[" + b"[]," * 700_000 + b"0]",
        b"[" + b"0," * 700_000 + b"0]",
        b'["' + b'","' * 700_000 + b'"]',
    ):
        (issue,) = refused(b'{"messages": [{"role": "user", "content": "hi"}], "x": ' + many + b"}")
        assert (issue.type, issue.loc) == ("too_many_values", ("body",))
    (issue,) = refused(b"{" + b",".join(b'"k%d":1' % at for at in range(MAX_VALUES)) + b"}")
    assert issue.type == "too_many_values"


def test_marks_within_a_text_are_no_values() -> None:
    text = '[{"a": 1, \\ "b": [2]}], ' * 100_000
    request = parse_chat_request(body(messages=[{"role": "user", "content": text}]), JSON)
    assert request.messages[0].content == text


def test_where_token_ids_are_taken_there_may_be_many_of_them_and_nothing_else() -> None:
    ids = b'{"prompt": [' + b"7," * (MAX_TOKEN_IDS - 8) + b"7]}"
    assert len(parse_json(ids, None, most=MAX_TOKEN_IDS)["prompt"]) == MAX_TOKEN_IDS - 7
    for costly in (b"[],", b"{},", b'"x",', b"7," * 16):
        raw = b'{"prompt": [' + costly * (MAX_VALUES + 1) + b"7]}"
        with pytest.raises(InvalidBody) as caught:
            parse_json(raw, None, most=MAX_TOKEN_IDS)
        assert caught.value.issues[0].type == "too_many_values"
    with pytest.raises(InvalidBody) as caught:
        parse_json(ids, None)
    assert caught.value.issues[0].ctx == {"max_values": MAX_VALUES}


def test_the_first_of_a_million_bad_token_ids_refuses_an_embedding() -> None:
    with pytest.raises(InvalidBody) as caught:
        check_shape({"input": [-1] * MAX_VALUES}, EmbeddingRequest)
    assert len(caught.value.issues) <= 4
