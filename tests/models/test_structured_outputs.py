"""`structured_outputs` and `guided_*`: one of them, of a kind that is offered, within bounds, and named where wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.catalog import Capabilities
from models.errors import InvalidField, UnsupportedOption
from models.options.options import check_grammars, select_options
from models.structured_outputs import (
    MAX_CHOICES,
    MAX_REGEX_CHARS,
    MAX_TEXT_CHARS,
    constraint_of,
    engine_constraint,
)

ABLE = Capabilities(tools=True)
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
EBNF = 'root ::= "a" | "b"'


def selected(**fields: Any) -> dict[str, Any]:
    options = select_options(fields, capabilities=ABLE, default_temperature=None, takes_constraints=True)
    check_grammars(options)
    return options


def for_engine(**fields: Any) -> dict[str, Any]:
    constraint = constraint_of(selected(**fields))
    assert constraint is not None
    return engine_constraint(constraint)


@pytest.mark.parametrize(
    ("kind", "value", "engine"),
    [
        ("regex", "[a-z]+", {"regex": "[a-z]+"}),
        ("choice", ["yes", 'a "b"\\\n'], {"grammar": r'root ::= "yes" | "a \"b\"\\\n"'}),
        ("grammar", EBNF, {"grammar": EBNF}),
        ("json", SCHEMA, {"json": SCHEMA}),
        ("json", json.dumps(SCHEMA), {"json": SCHEMA}),
    ],
)
def test_each_kind_is_had_by_either_name(kind: str, value: Any, engine: dict[str, Any]) -> None:
    assert for_engine(structured_outputs={kind: value}) == engine
    assert for_engine(**{f"guided_{kind}": value}) == engine
    # What vLLM's own class has besides, at its defaults.
    rest = {"json": None, "structural_tag": None, "disable_any_whitespace": False}
    assert for_engine(structured_outputs={**rest, kind: value}) == engine


@pytest.mark.parametrize("name", ["structured_outputs", "guided_regex", "guided_json"])
def test_where_they_are_not_taken_they_are_refused_as_before(name: str) -> None:
    with pytest.raises(UnsupportedOption, match=name):
        select_options({name: {"regex": "a"}}, capabilities=ABLE)


def refused(**fields: Any) -> tuple[str | int, ...]:
    with pytest.raises(InvalidField) as caught:
        selected(**fields)
    return caught.value.loc


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *((kind, wrong) for kind in ("regex", "grammar") for wrong in ("", 7, ["a"], {"a": 1}, True)),
        ("regex", "a" * (MAX_REGEX_CHARS + 1)),
        ("regex", "a\0b"),
        ("grammar", EBNF + " " * MAX_TEXT_CHARS),
        ("grammar", 'start: "a"'),
        *(("choice", wrong) for wrong in ([], "ab", [7], [""], ["a", None], ["a"] * (MAX_CHOICES + 1))),
        ("choice", ["a" * (MAX_TEXT_CHARS // 2), "b" * (MAX_TEXT_CHARS // 2 + 1)]),
        *(("json", wrong) for wrong in ("", "{", "[]", 7, [SCHEMA], "[" * 5000, '{"const": "\\ud800"}')),
        ("json", '{"a": ' * 900 + "1" + "}" * 900),
    ],
)
def test_what_is_malformed_or_too_large_is_named(kind: str, value: Any) -> None:
    assert refused(structured_outputs={kind: value}) == ("structured_outputs", kind)
    assert refused(**{f"guided_{kind}": value}) == (f"guided_{kind}",)


def test_a_schema_is_held_to_the_bounds_of_all_schemas() -> None:
    schema = {"properties": {"a": {"type": "text"}}}
    assert refused(guided_json=schema) == ("guided_json", "properties", "a", "type")
    place = ("structured_outputs", "json", "properties", "a", "type")
    assert refused(structured_outputs={"json": schema}) == place
    assert refused(guided_json={"pattern": ".*" * 30}) == ("guided_json", "pattern")


def test_what_is_not_offered_of_them_is_refused_by_name() -> None:
    for key in ("json_object", "structural_tag", "whitespace_pattern", "disable_any_whitespace", "_backend"):
        with pytest.raises(UnsupportedOption) as caught:
            selected(structured_outputs={"regex": "a", key: True})
        assert caught.value.option == f"structured_outputs.{key}"
    for name in ("guided_decoding_backend", "guided_whitespace_pattern", "guided_x"):
        with pytest.raises(UnsupportedOption) as caught:
            selected(**{name: "x"})
        assert caught.value.option == name
    assert refused(structured_outputs="a") == ("structured_outputs",)


def test_a_reply_is_held_to_one_thing() -> None:
    assert refused(structured_outputs={"regex": "a", "json": SCHEMA}) == ("structured_outputs", "json")
    assert refused(guided_regex="a", structured_outputs={"choice": ["a"]}) == ("structured_outputs", "choice")
    assert refused(guided_regex="a", response_format={"type": "json_object"}) == ("guided_regex",)
    assert refused(guided_regex="a", tools=[TOOL]) == ("guided_regex",)
    assert "guided_regex" in selected(guided_regex="a", tools=[TOOL], tool_choice="none")
    assert "guided_regex" in selected(guided_regex="a", response_format={"type": "text"})
    assert selected(structured_outputs={}) == {}


@pytest.mark.integration
@given(
    choices=st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=8), min_size=1, max_size=5)
)
def test_a_choice_allows_its_texts_and_no_others(choices: list[str]) -> None:
    from xgrammar import Grammar
    from xgrammar.testing import _is_grammar_accept_string as accepts

    grammar = Grammar.from_ebnf(for_engine(guided_choice=choices)["grammar"])
    assert all(accepts(grammar, choice) for choice in choices)
    others = {choices[0] + "x", choices[0][:-1], "\\" + choices[0]} - set(choices)
    assert not any(accepts(grammar, other) for other in others)
