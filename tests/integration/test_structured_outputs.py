"""`structured_outputs` and `guided_*` at `/openai/v1`, as the `openai` client sends them: the engine keeps to them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.integration.running import Server

MODEL = "pith-mini"
ASK: list[Any] = [{"role": "user", "content": "Which colour?"}]
COLOURS = ["red", "dark green", 'a "blue"\n']
SCHEMA = {
    "type": "object",
    "properties": {"size": {"enum": ["S", "M"]}, "count": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["size", "count"],
    "additionalProperties": False,
}
SUM = 'root ::= term ("+" term)?\nterm ::= [0-9] | "(" root ")"'


def is_sized(text: str) -> bool:
    found = json.loads(text)
    return set(found) == {"size", "count"} and found["size"] in ("S", "M") and 1 <= found["count"] <= 9


HELD: dict[str, tuple[Any, Any]] = {
    "regex": (r"[A-C]{2}-[0-9]{3}", re.compile(r"[A-C]{2}-[0-9]{3}").fullmatch),
    "choice": (COLOURS, COLOURS.__contains__),
    "grammar": (SUM, re.compile(r"[0-9+()]+").fullmatch),
    "json": (SCHEMA, is_sized),
}


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    base = f"{server.url}/openai/v1"
    with openai.OpenAI(base_url=base, api_key=server.key, max_retries=0, timeout=180) as client:
        yield client


@pytest.mark.parametrize("kind", HELD)
def test_a_reply_is_held_to_each_kind(client: openai.OpenAI, kind: str) -> None:
    value, fits = HELD[kind]
    for extra in ({"structured_outputs": {kind: value}}, {f"guided_{kind}": value}):
        chat = client.chat.completions.create(
            model=MODEL, messages=ASK, max_tokens=400, temperature=1, seed=7, extra_body=extra
        )
        assert chat.choices[0].finish_reason == "stop" and fits(chat.choices[0].message.content), chat
        whole = client.completions.create(
            model=MODEL, prompt="Colour: ", max_tokens=400, temperature=1, seed=7, extra_body=extra
        )
        assert whole.choices[0].finish_reason == "stop" and fits(whole.choices[0].text), whole


def test_a_stream_is_held_to_a_choice(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model=MODEL, messages=ASK, max_tokens=50, stream=True, extra_body={"guided_choice": COLOURS}
    )
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) in COLOURS


@pytest.mark.parametrize(
    ("extra", "param"),
    [
        ({"guided_regex": "(a"}, "guided_regex"),
        ({"structured_outputs": {"grammar": "root ::= ("}}, "structured_outputs"),
        ({"guided_grammar": 'root ::= s\ns ::= [a-z ] s [a-z ] | s s | ""'}, "guided_grammar"),
        (
            {"structured_outputs": {"json": {"type": "string", "pattern": ".*" * 30}}},
            "structured_outputs.json.pattern",
        ),
        ({"structured_outputs": {"structural_tag": "{}"}}, "structured_outputs.structural_tag"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_is_malformed_or_too_costly_is_refused_by_name(
    client: openai.OpenAI, extra: dict[str, Any], param: str, stream: bool
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(
            model=MODEL, messages=ASK, max_tokens=5, stream=stream, extra_body=extra
        )
    assert caught.value.param == param, caught.value.body


def test_the_contract_goes_on_refusing_them(server: Server) -> None:
    with server.client() as http:
        for extra in ({"structured_outputs": {"regex": "a"}}, {"guided_choice": ["a"]}):
            reply = http.post("/v1/chat/completions", json={"messages": ASK, **extra})
            assert reply.status_code == 400 and next(iter(extra)) in reply.json()["detail"]


def test_a_reply_whose_grammar_gets_slower_with_its_text_is_given_up(client: openai.OpenAI) -> None:
    # Its trial sees digits alone.
    ambiguous = 'root ::= [0-9]{250} s\ns ::= [a-z ] s [a-z ] | s s | ""'
    with pytest.raises(openai.BadRequestError, match="takes too long to follow") as caught:
        client.chat.completions.create(
            model=MODEL,
            messages=ASK,
            max_tokens=3000,
            temperature=1,
            seed=7,
            extra_body={"guided_grammar": ambiguous, "min_tokens": 3000},
        )
    assert caught.value.param == "guided_grammar"
    # Nobody else has anything of it.
    again = client.chat.completions.create(
        model=MODEL, messages=ASK, max_tokens=50, extra_body={"guided_choice": COLOURS}
    )
    assert again.choices[0].message.content in COLOURS
