"""Cost of a chat request's body before any limit or engine has seen it, and of its grammar at its bounds."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from benchmarks.limits.row import Row, Work
from models.catalog import Capabilities
from models.errors import InvalidField
from models.options.messages import MAX_ARGUMENT_VALUES, MAX_REQUEST_CALLS, MAX_REQUEST_PARTS, engine_messages
from models.options.options import check_grammars, select_options
from models.options.schemas import (
    MAX_FORMATS,
    MAX_NODES,
    MAX_OPTIONAL,
    MAX_PATTERNS,
    MAX_QUANTIFIERS,
    MAX_RANGES,
)
from serve.chat.request import ChatCompletionRequest
from serve.http.request_body import MAX_VALUES, InvalidBody, parse_body

BODY = 8 * 2**20
ABLE = Capabilities(tools=True, template_roles=frozenset({"system", "user", "assistant", "tool"}))
HI = {"role": "user", "content": "hi"}
# As many tokens as the large open models have.
VOCABULARY = 150_000

Body = Callable[[int], dict[str, Any]]


def with_messages(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"messages": [*messages], **fields}


def calls(count: int, arguments: str) -> dict[str, Any]:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return {"role": "assistant", "tool_calls": [call] * count}


def chained(values: int) -> dict[str, Any]:
    count = values // 2 - 4
    links = {f"d{at}": {"$ref": f"#/$defs/d{at + 1}"} for at in range(count)}
    return {"$ref": "#/$defs/d0", "$defs": {**links, f"d{count}": {"type": "string"}}}


def wanting(schema: dict[str, Any]) -> dict[str, Any]:
    wanted = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
    return with_messages(HI, response_format=wanted)


def tools(count: int, schema: dict[str, Any]) -> dict[str, Any]:
    offered = [
        {"type": "function", "function": {"name": f"f{at}", "parameters": schema}} for at in range(count)
    ]
    return with_messages(HI, tools=offered)


# Each makes a body of about `size` of what its bound counts.
BODIES: dict[str, tuple[str, int, Body]] = {
    "one long text": ("8 MiB", BODY, lambda size: with_messages({**HI, "content": "x" * size})),
    "a text of commas and brackets": (
        "8 MiB",
        BODY,
        lambda size: with_messages({**HI, "content": "[,{:" * (size // 4)}),
    ),
    "a text of quotes": ("8 MiB", BODY // 2, lambda size: with_messages({**HI, "content": '"' * size})),
    "empty lists": ("8 MiB", BODY, lambda size: with_messages(HI, x=[[]] * (size // 4))),
    "empty lists, as many as are taken": (
        f"{MAX_VALUES:,} values",
        MAX_VALUES - 100,
        lambda size: with_messages(HI, x=[[]] * (size // 2)),
    ),
    "properties that nobody knows": (
        f"{MAX_VALUES:,} values",
        MAX_VALUES - 100,
        lambda size: with_messages(HI, **{f"x{at}": 1 for at in range(size // 2)}),
    ),
    "empty content parts": (
        f"{MAX_REQUEST_PARTS:,} parts",
        MAX_REQUEST_PARTS,
        lambda size: with_messages(
            *[{"role": "user", "content": [{"type": "text", "text": ""}] * (size // 4)}] * 4
        ),
    ),
    "240,000 empty content parts": (
        "8 MiB",
        240_000,
        lambda size: with_messages({"role": "user", "content": [{"type": "text", "text": ""}] * size}),
    ),
    "tool calls": (
        f"{MAX_REQUEST_CALLS:,} calls",
        MAX_REQUEST_CALLS,
        lambda size: with_messages(*[calls(size // 8, "{}")] * 8),
    ),
    "lists in a call's arguments": (
        f"{MAX_ARGUMENT_VALUES:,} values",
        MAX_ARGUMENT_VALUES,
        lambda size: with_messages(calls(1, "[" + "[]," * (size // 2 - 2) + "0]")),
    ),
    "eight megabytes of lists in a call's arguments": (
        "8 MiB",
        BODY,
        lambda size: with_messages(calls(1, "[" + "[]," * (size // 3 - 2) + "0]")),
    ),
    "a schema of chained references": (
        f"{MAX_NODES:,} values",
        MAX_NODES,
        lambda size: wanting(chained(size)),
    ),
    "the schemas of 128 tools": (
        f"{MAX_NODES:,} values",
        MAX_NODES,
        lambda size: tools(128, {"enum": [0] * (size // 128 - 2)}),
    ),
    "the schemas of 128 tools, at 8 MiB": (
        "8 MiB",
        BODY,
        lambda size: tools(128, {"title": "x" * (size // 128)}),
    ),
}


def body_of(name: str, size: int) -> Work:
    raw = json.dumps(BODIES[name][2](size)).encode()

    def work() -> None:
        try:
            body = parse_body(raw, None, ChatCompletionRequest)
            check_grammars(select_options(body.option_fields(), capabilities=ABLE))
            engine_messages(body.message_fields(), capabilities=ABLE)
        except (InvalidBody, InvalidField):
            # Refusing is work too, and what most of these come to.
            pass

    return work


def named(count: int, schema: Callable[[int], dict[str, Any]], *, required: bool = True) -> dict[str, Any]:
    properties = {f"p{at}": schema(at) for at in range(count)}
    return {
        "type": "object",
        "properties": properties,
        "required": [*properties] if required else [],
        "additionalProperties": False,
    }


FORMATS = ("date-time", "email", "uri", "ipv6", "uuid", "hostname", "duration")
GRAMMARS: dict[str, tuple[str, int, Body]] = {
    "optional properties": (
        f"{MAX_OPTIONAL} in an object",
        MAX_OPTIONAL,
        lambda size: named(size, lambda _: {"type": "string"}, required=False),
    ),
    "required properties": ("10,000 values", 1600, lambda size: named(size, lambda _: {"type": "string"})),
    "a choice of values": (
        "10,000 values",
        5000,
        lambda size: {"enum": [f"value {at}" for at in range(size)]},
    ),
    "a pattern of .*": (
        f"{MAX_QUANTIFIERS} quantifiers",
        MAX_QUANTIFIERS,
        lambda size: {"type": "string", "pattern": ".*" * size},
    ),
    "patterns": (
        f"{MAX_PATTERNS} patterns",
        MAX_PATTERNS,
        lambda size: named(size, lambda at: {"type": "string", "pattern": f"^[a-z]+{at}[0-9]*$"}),
    ),
    "formats": (
        f"{MAX_FORMATS} formats",
        MAX_FORMATS,
        lambda size: named(size, lambda at: {"type": "string", "format": FORMATS[at % len(FORMATS)]}),
    ),
    "numbers with a range": (
        f"{MAX_RANGES} ranges",
        MAX_RANGES,
        lambda size: named(
            size, lambda at: {"type": "integer", "minimum": at - 10**15, "maximum": 9 * 10**15 + at * 77}
        ),
    ),
    "the longest text": ("a trial's 0.5 s", 12, lambda size: {"type": "string", "maxLength": size}),
}


@cache
def tokenizer() -> Any:
    """As many tokens as the large open models have, in xgrammar's terms."""
    import xgrammar

    return xgrammar.TokenizerInfo(_vocabulary(), vocab_size=VOCABULARY)


@cache
def compiler() -> Any:
    import xgrammar

    return xgrammar.GrammarCompiler(tokenizer(), max_threads=1, cache_enabled=False)


def _vocabulary() -> list[bytes]:
    """Words, numbers, marks and Chinese, in the lengths and shares of a large open model's tokens."""
    draw = random.Random(1)
    words: dict[bytes, None] = {bytes([each]): None for each in range(256)}
    while len(words) < VOCABULARY:
        words[_token(draw).encode()] = None
    return list(words)


def _token(draw: random.Random) -> str:
    kind = draw.random()
    if kind < 0.1:
        return "".join(draw.choices("0123456789", k=draw.randint(1, 3)))
    if kind < 0.25:
        return "".join(draw.choices("\"{}[]():,;.<>=+-*/\\\n\t _#&|!?'", k=draw.randint(2, 6)))
    if kind < 0.4:
        return "".join(chr(draw.randint(0x4E00, 0x9FFF)) for _ in range(draw.randint(1, 3)))
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    word = "".join(
        draw.choices(letters, weights=range(26, 0, -1), k=draw.choice((2, 3, 4, 4, 5, 5, 6, 7, 8, 9, 10, 12)))
    )
    return (" " if draw.random() < 0.6 else "") + (word.capitalize() if draw.random() < 0.2 else word)


def grammar_of(name: str, size: int) -> Work:
    schema = json.dumps(GRAMMARS[name][2](size))
    grammars = compiler()
    return lambda: grammars.compile_json_schema(schema)


CHAT: tuple[Row, ...] = (
    *(Row("body", name, bound, most, partial(body_of, name)) for name, (bound, most, _) in BODIES.items()),
    *(
        Row("grammar", name, bound, most, partial(grammar_of, name))
        for name, (bound, most, _) in GRAMMARS.items()
    ),
)
