"""Bad chat requests: what is sent, the status it must get, and the place that the answer must name."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from models.options.options import REFUSED

USER = {"role": "user", "content": "Hello."}
# Fits no machine word, so it must not break the answer that shows it.
HUGE = 10**30
TOOL = {"type": "function", "function": {"name": "f"}}


@dataclass(frozen=True)
class Bad:
    """One bad request. `where` is the path in a 422's `loc`, dotted, or the option that a 400 names."""

    name: str
    body: bytes
    where: str
    status: int = 422
    content_type: str | None = "application/json"


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:60]}..{text[-18:]}"


def field(name: str, value: Any, where: str | None = None, *, status: int = 422, **others: Any) -> Bad:
    """A request that is fine but for one property, beside `others`; `where` unset: the property itself is at fault."""
    place = where if where is not None else f"body.{name}" if status == 422 else name
    body = json.dumps({"messages": [USER], "max_tokens": 1, **others, name: value}).encode()
    return Bad(f"{name} {_shown(value)}", body, place, status)


def raw(name: str, body: bytes, where: str = "body", *, content_type: str | None = "application/json") -> Bad:
    return Bad(name, body, where, 422, content_type)


def message(where: str, *, status: int = 422, **fields: Any) -> Bad:
    """A good message and then a bad one."""
    place = f"body.messages.1.{where}".rstrip(".") if status == 422 else f"messages[1].{where}"
    body = json.dumps({"messages": [USER, fields], "max_tokens": 1}).encode()
    return Bad(f"message {_shown(fields)}", body, place, status)


def json_schema(schema: Any, where: str = "") -> Bad:
    wanted = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
    return field("response_format", wanted, f"body.response_format.json_schema.schema{where}")


def uncompilable(schema: Any) -> Bad:
    """A JSON Schema that passes our own bounds and that no grammar can be made from."""
    wanted = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
    return field("response_format", wanted, "body.response_format")


def deep(depth: int) -> bytes:
    return b'{"messages": ' + b"[" * depth + b"]" * depth + b"}"


def nested_schema(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


WITH = b'{"messages": [{"role": "user", "content": "Hello."}], "max_tokens": 1, '

MALFORMED = [
    raw("no body", b""),
    raw("only spaces", b" \n\t "),
    raw("no JSON", b"hello"),
    raw("half an object", b'{"messages": [{"role": "user"'),
    raw("half a string", b'{"messages": [{"role": "us'),
    raw("two objects", WITH + b'"a": 1} {}'),
    raw("a trailing comma", WITH + b"}"),
    raw("single quotes", b"{'messages': []}"),
    raw("a comment", WITH + b'"a": 1 /* b */}'),
    raw("a byte order mark", b"\xef\xbb\xbf{}"),
    raw("UTF-16", '{"messages": []}'.encode("utf-16")),
    raw("a lone byte ff", WITH + b'"a": "\xff"}'),
    raw("overlong UTF-8", WITH + b'"a": "\xc0\xaf"}'),
    raw("half a surrogate pair", WITH + rb'"a": "\ud800"}'),
    raw("a raw control character", WITH + b'"a": "\x01"}'),
    raw("NUL bytes", b"\0" * 100),
    raw("NaN", WITH + b'"temperature": NaN}'),
    raw("Infinity", WITH + b'"temperature": Infinity}'),
    raw("-Infinity", WITH + b'"temperature": -Infinity}'),
    raw("NaN where nothing is read", WITH + b'"a": [NaN]}'),
    raw("hexadecimal", WITH + b'"seed": 0x10}'),
    raw("a number of 5000 digits", WITH + b'"seed": ' + b"9" * 5000 + b"}"),
    raw("a number over all floats", WITH + b'"temperature": 1e400}', "body.temperature"),
    raw("nested 250 deep", deep(250)),
    raw("nested 100000 deep", deep(100_000)),
    raw("9 MiB", WITH + b'"a": "' + b"x" * (9 * 2**20) + b'"}'),
    raw("9 MiB of spaces", b" " * (9 * 2**20)),
    raw("an array", b"[]"),
    raw("a string", b'"messages"'),
    raw("a number", b"1"),
    raw("null", b"null"),
    raw("an empty object", b"{}", "body.messages"),
    raw("gzip", b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xab\xae\x05\x00\x43\xbf\xa6\xa3\x02\x00\x00\x00"),
    raw("form data", b"messages=a", "header.content-type", content_type="application/x-www-form-urlencoded"),
    raw("plain text", WITH + b'"a": 1}', "header.content-type", content_type="text/plain"),
    raw("multipart", b"--a--", "header.content-type", content_type="multipart/form-data; boundary=a"),
    raw("XML", b"<a/>", "header.content-type", content_type="application/xml"),
    raw("a charset", b"{}", "header.content-type", content_type="application/json; charset=utf-16"),
    raw("half a type", b"{}", "header.content-type", content_type="application/"),
    raw("no type at all", b"{", "body", content_type=None),
]

MESSAGES = [
    field("messages", None),
    field("messages", []),
    field("messages", {}),
    field("messages", "Hello."),
    field("messages", 5),
    field("messages", True),
    field("messages", [USER] * 257),
    field("messages", [None], "body.messages.0"),
    field("messages", ["Hello."], "body.messages.0"),
    field("messages", [[USER]], "body.messages.0"),
    message("role"),
    message("role", role=None),
    message("role", role=""),
    message("role", role="User"),
    message("role", role="robot", content="x"),
    message("role", role=1),
    message("role", role=["user"]),
    message("content", role="user", content=1),
    message("content", role="user", content=False),
    message("content", role="user", content={"type": "text", "text": "x"}),
    message("content.0", role="user", content=["x"]),
    message("content.0", role="user", content=[HUGE]),
    message("content.1", role="user", content=[{"type": "text", "text": "x"}, None]),
    message("content.0.type", role="user", content=[{}]),
    message("content.0.type", role="user", content=[{"type": 1}]),
    message("content.0.text", role="user", content=[{"type": "text"}]),
    message("content.0.text", role="user", content=[{"type": "text", "text": 1}]),
    message("name", role="user", content="x", name=1),
    message("name", role="user", content="x", name="n" * 257),
    message("tool_call_id", role="tool", content="x", tool_call_id=5),
    message("tool_calls", role="assistant", tool_calls={}),
    message("tool_calls", role="user", content="x", tool_calls=[{"id": "a"}]),
    message("tool_calls.0", role="assistant", tool_calls=["f"]),
    message("tool_calls.0.id", role="assistant", tool_calls=[{}]),
    message("tool_calls.0.function", role="assistant", tool_calls=[{"id": "a"}]),
    message("tool_calls.0.function.name", role="assistant", tool_calls=[{"id": "a", "function": {}}]),
    message(
        "tool_calls.0.function.arguments",
        role="assistant",
        tool_calls=[{"id": "a", "function": {"name": "f", "arguments": {}}}],
    ),
    message(
        "tool_calls.0.function.arguments",
        role="assistant",
        tool_calls=[{"id": "a", "function": {"name": "f", "arguments": "[" * 100}}],
    ),
    message(
        "content[0]",
        role="user",
        content=[{"type": "image_url", "image_url": {"url": "data:,"}}],
        status=400,
    ),
    message(
        "tool_calls[0].type",
        role="assistant",
        tool_calls=[{"id": "a", "type": "custom", "custom": {}}],
        status=400,
    ),
]

FIELDS = [
    *(field("model", value) for value in ("unknown", "", "PITH-MINI", "m" * 256, "m" * 257, 1, [], {}, True)),
    *(field("max_tokens", value) for value in (0, -1, 16_385, HUGE, 1.0, 1.5, "1", True, [1], {})),
    *(field("max_completion_tokens", value) for value in (0, 16_385, "1", 1.5)),
    *(field("temperature", value) for value in (-0.001, 2.001, -HUGE, HUGE, 1e308, "1", True, [], {})),
    *(field("stream", value) for value in (1, 0, "true", [], {})),
    field("stream_options", {"include_usage": True}),
    *(field("top_p", value) for value in (-0.01, 1.01, "1", HUGE)),
    *(field("top_k", value) for value in (-2, 2**31, 1.5, "1")),
    *(field("min_p", value) for value in (-0.01, 1.01, [])),
    *(field("n", value) for value in (0, 9, 1.5, "2", HUGE)),
    *(field("seed", value) for value in (2**63, -(2**63) - 1, 1.5, "1", True)),
    *(field("presence_penalty", value) for value in (-2.01, 2.01, "0")),
    *(field("frequency_penalty", value) for value in (-2.01, 2.01, {})),
    *(field("repetition_penalty", value) for value in (0, 0.009, 10.01, "1")),
    field("stop", 5),
    field("stop", ""),
    field("stop", ["a"] * 5),
    field("stop", [""], "body.stop.0"),
    field("stop", ["a", 1], "body.stop.1"),
    field("stop", "x" * 1025),
    field("logit_bias", []),
    field("logit_bias", {"5": 101}, "body.logit_bias.5"),
    field("logit_bias", {"x": 1}, "body.logit_bias.x"),
    field("logit_bias", {"5": "1"}, "body.logit_bias.5"),
    field("logit_bias", {str(token): 1 for token in range(1025)}),
    field("logprobs", 1),
    *(field("top_logprobs", value) for value in (-1, 21, 5, "1")),
    *(field("min_tokens", value) for value in (-1, 2, 16_385, "1", HUGE)),
    *(field("ignore_eos", value) for value in ("yes", 1)),
    *(field("parallel_tool_calls", value) for value in ("no", 0)),
    *(field("reasoning_effort", value) for value in ("huge", 1)),
    field("store", "yes"),
    field("service_tier", 5),
    field("modalities", "text"),
    field("modalities", ["text", "smell"], "body.modalities.1"),
    field("chat_template_kwargs", []),
]

STRUCTURED = [
    field("response_format", "json"),
    field("response_format", {}, "body.response_format.type"),
    field("response_format", {"type": "yaml"}, "body.response_format.type"),
    field("response_format", {"type": "json_schema"}, "body.response_format.json_schema"),
    field(
        "response_format", {"type": "json_schema", "json_schema": {}}, "body.response_format.json_schema.name"
    ),
    json_schema([]),
    json_schema(5),
    json_schema({"type": "strange"}, ".type"),
    json_schema({"type": 1}, ".type"),
    json_schema({"type": "string", "pattern": 5}, ".pattern"),
    json_schema({"type": "string", "pattern": "a" * 513}, ".pattern"),
    json_schema({"type": "string", "pattern": "a{1,100000}"}),
    json_schema({"type": "string", "minLength": -1}, ".minLength"),
    json_schema(nested_schema(40)),
    json_schema({"properties": {"a": {"type": "no"}}}, ".properties.a.type"),
    json_schema({"enum": list(range(10_001))}),
    uncompilable({"type": "string", "pattern": "(("}),
    uncompilable({"type": "string", "minLength": 5, "maxLength": 1}),
    uncompilable({"$ref": "#/$defs/none"}),
    json_schema({"$ref": "#"}),
    json_schema({"allOf": [{"$ref": "#"}]}),
    uncompilable({"enum": []}),
    field("tools", {}),
    field("tools", ["f"], "body.tools.0"),
    field("tools", [{}], "body.tools.0.type"),
    field("tools", [{"type": "function"}], "body.tools.0.function"),
    field("tools", [{"type": "function", "function": {}}], "body.tools.0.function.name"),
    field("tools", [{"type": "function", "function": {"name": "no spaces"}}], "body.tools.0.function.name"),
    field(
        "tools",
        [{"type": "function", "function": {"name": "f", "parameters": []}}],
        "body.tools.0.function.parameters",
    ),
    field("tools", [TOOL] * 129),
    field("tool_choice", "always"),
    field("tool_choice", 5),
    field("tool_choice", "required"),
    field("tool_choice", {"type": "function"}, "body.tool_choice.function"),
]

OPTIONS = [
    *(field(name, True, status=400) for name in sorted(REFUSED)),
    field("guided_json", {}, status=400),
    field("guided_anything", "x", status=400),
    field("return_token_ids", True, status=400),
    field("return_tokens_as_token_ids", False, status=400),
    field("tool_choice", "required", status=400, model="pith-small", tools=[TOOL]),
    field("tools", [{"type": "custom", "custom": {}}], "tools[0].type", status=400),
    field("tool_choice", {"type": "custom"}, "tool_choice.type", status=400),
    field("store", True, status=400),
    field("service_tier", "flex", status=400),
    field("modalities", ["text", "audio"], status=400),
    field("reasoning_effort", "low", status=400),
    field("chat_template_kwargs", {"x": 1}, "chat_template_kwargs.x", status=400),
]

CONTEXT = [
    field("messages", [{"role": "user", "content": "river " * 20_000}]),
    field("messages", [{"role": "user", "content": "a b " * 500_000}]),
    field("max_tokens", 16_384),
    field("max_completion_tokens", 16_384),
    field("logit_bias", {"999999999": 1}),
]

ALL = [*MALFORMED, *MESSAGES, *FIELDS, *STRUCTURED, *OPTIONS, *CONTEXT]
