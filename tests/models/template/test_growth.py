"""No conversation that a template renders is longer than what was proven of it; what cannot be proven is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2.sandbox import ImmutableSandboxedEnvironment

from models.template.growth import Growth, template_growth

FOLDER = Path(__file__).parent / "templates"
EMBEDDED = Path(__file__).parents[3] / "models/embedded/tokenizer/chat_template.jinja"
SPECIAL = {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}
AS_STRINGS = [EMBEDDED, *(FOLDER / f"{name}.jinja" for name in ("reasoning", "preamble", "headers", "parts"))]
AS_PARTS = [EMBEDDED, FOLDER / "parts.jinja"]

SAID = st.text(max_size=30) | st.sampled_from(
    ["", "ΐΐΐ", "</think>a", "<think>x</think>", "<tool_response>", "\n"]
)
ROLES = st.sampled_from(["system", "user", "assistant", "tool"])


def rendered(source: str, messages: list[dict[str, Any]]) -> str | None:
    """As `transformers` renders it; None where the template refuses the conversation."""

    class Refused(Exception):
        pass

    def refuse(message: str) -> None:
        raise Refused(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = refuse
    try:
        return environment.from_string(source).render(
            messages=messages, add_generation_prompt=True, tools=None, documents=None, **SPECIAL
        )
    except Refused:
        return None


def most(growth: Growth, messages: list[dict[str, Any]]) -> int:
    texts = [
        [part["text"] for part in message["content"]]
        if isinstance(message["content"], list)
        else [message["content"]]
        for message in messages
    ]
    size = sum(len(text.encode()) for found in texts for text in found)
    return (
        growth.copies * size
        + growth.per_message * len(messages)
        + growth.per_part * sum(map(len, texts))
        + growth.fixed
    )


@pytest.mark.parametrize("path", AS_STRINGS, ids=lambda path: path.stem)
@given(messages=st.lists(st.fixed_dictionaries({"role": ROLES, "content": SAID}), min_size=1, max_size=6))
@settings(max_examples=100, deadline=None)
def test_no_prompt_of_strings_is_longer_than_proven(path: Path, messages: list[dict[str, Any]]) -> None:
    source = path.read_text()
    growth = template_growth(source, SPECIAL, parts=False)
    assert growth is not None and growth.copies <= 3
    prompt = rendered(source, messages)
    assert prompt is None or len(prompt.encode()) <= most(growth, messages)


PARTS = st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": SAID}), max_size=4)


@pytest.mark.parametrize("path", AS_PARTS, ids=lambda path: path.stem)
@given(messages=st.lists(st.fixed_dictionaries({"role": ROLES, "content": PARTS}), min_size=1, max_size=6))
@settings(max_examples=100, deadline=None)
def test_no_prompt_of_parts_is_longer_than_proven(path: Path, messages: list[dict[str, Any]]) -> None:
    source = path.read_text()
    growth = template_growth(source, SPECIAL, parts=True)
    assert growth is not None
    prompt = rendered(source, messages)
    assert prompt is None or len(prompt.encode()) <= most(growth, messages)


def test_the_proof_of_a_plain_template_is_as_tight_as_can_be() -> None:
    growth = template_growth(EMBEDDED.read_text(), {}, parts=False)
    assert growth is not None and (growth.copies, growth.per_part) == (1, 0)


LOOP = "{% for message in messages %}%s{% endfor %}"


@pytest.mark.parametrize(
    "source",
    [
        # Each message again for each message, and each text as often as it has parts.
        LOOP.replace("%s", "{% for other in messages %}{{ other.content }}{% endfor %}"),
        LOOP.replace("%s", "{{ messages[0].content }}"),
        "{% set first = messages[0].content %}" + LOOP.replace("%s", "{{ first }}"),
        # A text that grows from turn to turn of a loop.
        "{% set ns = namespace(all='') %}"
        + LOOP.replace("%s", "{% set ns.all = ns.all + message.content %}{{ ns.all }}"),
        # Rewritten in a way of which nothing is known.
        LOOP.replace("%s", "{{ message.content | replace('a', 'aaaa') }}"),
        LOOP.replace("%s", "{{ message.content.replace('a', 'aaaa') }}"),
        LOOP.replace("%s", "{{ message.content.center(10000) }}"),
        LOOP.replace("%s", "{{ '%s and %s' % (message.content, message.content) }}"),
        LOOP.replace("%s", "{{ message.content * 40 }}"),
        LOOP.replace("%s", "{% for letter in message.content %}<{{ letter }}>{% endfor %}"),
        LOOP.replace("%s", "{{ message }}"),
        LOOP.replace("%s", "{{ message.items() }}"),
        # Known to the server alone, or to nobody.
        "{{ strftime_now('%d %b %Y') }}",
        "{{ house_rules }}" + LOOP.replace("%s", "{{ message.content }}"),
        "{% for n in range(100000) %}x{% endfor %}",
        "{% include 'other' %}",
        "{% macro again(n) %}{{ again(n) }}{% endmacro %}{{ again(1) }}",
        "{% for message in messages %}",
    ],
)
def test_what_is_not_understood_is_not_proven(source: str) -> None:
    assert template_growth(source, SPECIAL, parts=False) is None


def test_a_list_of_parts_that_is_printed_as_python_writes_it_is_not_proven() -> None:
    source = LOOP.replace("%s", "{{ message.content }}")
    assert template_growth(source, {}, parts=False) == Growth(1, 0, 0, 0)
    assert template_growth(source, {}, parts=True) is None


def test_what_a_macro_sees_is_what_stands_outside_of_loops() -> None:
    source = (
        "{% set text = messages[0].content %}{% macro say() %}{{ text }}{% endmacro %}"
        "{% for message in messages %}{% set text = '' %}{{ say() }}{% endfor %}"
    )
    assert template_growth(source, {}, parts=False) is None
