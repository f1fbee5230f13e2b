"""Schemas that are harmless pass, and those that have crashed or stalled engines do not."""

from collections.abc import Callable
from typing import Any

import pytest

from models.errors import InvalidField
from models.options.schemas import (
    MAX_DEPTH,
    MAX_NODES,
    MAX_OPTIONAL,
    MAX_REPETITIONS,
    MAX_REQUEST_TEXT_CHARS,
    MAX_TEXT_CHARS,
    check_schemas,
)
from tests.work import growth


def check_schema(schema: dict[str, Any], loc: tuple[str | int, ...]) -> None:
    check_schemas([(schema, loc)])


def refused(schema: dict[str, Any]) -> tuple[tuple[str | int, ...], str]:
    with pytest.raises(InvalidField) as caught:
        check_schema(schema, ("at",))
    return caught.value.loc[1:], caught.value.message


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth - 1):
        schema = {"items": schema}
    return schema


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {
            "type": "object",
            "properties": {"type": {"type": "string"}, "pattern": {"type": ["string", "null"]}},
        },
        {"properties": {"pattern": {"minLength": 0, "maxLength": 65_536, "pattern": "^[a-z]{2,8}$"}}},
        {"enum": [{"type": 5}, "x", None, 1.5], "const": {"pattern": 7}, "default": {"type": []}},
        {
            "anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}],
            "$defs": {"a": {"type": "integer", "minimum": -(2**63)}},
        },
        {"type": "array", "prefixItems": [{"type": "string"}], "items": False, "additionalProperties": True},
        {"x-own": "anything"},
        {"pattern": "a{1,1000}"},
    ],
)
def test_an_ordinary_schema_passes(schema: dict[str, Any]) -> None:
    check_schema(schema, ())


@pytest.mark.parametrize(
    ("schema", "loc"),
    [
        ({"type": "text"}, ("type",)),
        ({"type": 5}, ("type",)),
        ({"type": None}, ("type",)),
        ({"type": []}, ("type",)),
        ({"type": {"x": 1}}, ("type",)),
        ({"type": ["string", "x"]}, ("type",)),
        ({"type": [["string"]]}, ("type",)),
        ({"pattern": 5}, ("pattern",)),
        ({"pattern": {"x": 1}}, ("pattern",)),
        ({"pattern": "x" * 513}, ("pattern",)),
        ({"minLength": -1}, ("minLength",)),
        ({"maxItems": "5"}, ("maxItems",)),
        ({"maxItems": 1.5}, ("maxItems",)),
        ({"minItems": True}, ("minItems",)),
        ({"minimum": 2**63}, ("minimum",)),
        ({"const": [1, -(2**63) - 1]}, ("const", 1)),
        ({"maximum": float("inf")}, ("maximum",)),
        ({"properties": {"a": {"items": {"type": "x"}}}}, ("properties", "a", "items", "type")),
        ({"anyOf": [{}, {"pattern": 1}]}, ("anyOf", 1, "pattern")),
        ({"$defs": {"properties": {"type": 1}}}, ("$defs", "properties", "type")),
    ],
)
def test_what_engines_compile_must_be_well_formed(schema: dict[str, Any], loc: tuple[str | int, ...]) -> None:
    assert refused(schema)[0] == loc


def test_a_pattern_must_not_count_far() -> None:
    check_schema({"pattern": f"a{{0,{MAX_REPETITIONS}}}"}, ())
    for pattern in (
        f"a{{0,{MAX_REPETITIONS + 1}}}",
        f"a{{{MAX_REPETITIONS + 1}}}",
        f"a{{{MAX_REPETITIONS + 1},}}",
    ):
        assert "repetitions" in refused({"pattern": pattern})[1]
    assert "repetitions" in refused({"anyOf": [{"pattern": "a{600}"}, {"pattern": "b{600}"}]})[1]


def test_names_of_pattern_properties_are_patterns_too() -> None:
    assert refused({"patternProperties": {"^a{1,5000}$": {}}})[0] == ()
    assert refused({"patternProperties": {"x" * 513: {}}})[0] == ("patternProperties",)


def test_depth_is_bounded() -> None:
    check_schema(nested(MAX_DEPTH), ())
    assert "deeper" in refused(nested(MAX_DEPTH + 1))[1]
    assert "deeper" in refused(nested(100_000))[1]


def test_size_is_bounded() -> None:
    check_schema({"enum": [None] * (MAX_NODES - 2)}, ())
    assert "values" in refused({"enum": [None] * (MAX_NODES - 1)})[1]
    check_schema({"title": "x" * (MAX_TEXT_CHARS - 5)}, ())
    assert "characters" in refused({"title": "x" * (MAX_TEXT_CHARS - 4)})[1]
    assert "characters" in refused({"properties": {"x" * MAX_TEXT_CHARS: {}}})[1]


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {"anyOf": [{"type": "string"}, {"$ref": "#"}]},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"type": "object", "properties": {"x": {"$ref": "#/properties/x"}}},
    ],
)
def test_a_schema_that_is_only_itself_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidField, match="refers to itself"):
        check_schema(schema, ("response_format",))


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"next": {"$ref": "#"}}},
        {"$defs": {"tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}, "$ref": "#/$defs/tree"},
        {"$ref": "#/$defs/gone"},
        {"$defs": {"a/b": {"type": "null"}}, "$ref": "#/$defs/a~1b"},
    ],
)
def test_a_schema_that_recurs_through_what_it_holds_is_taken(schema: dict[str, Any]) -> None:
    check_schema(schema, ("response_format",))


def chained(length: int) -> dict[str, Any]:
    links = {f"d{index}": {"$ref": f"#/$defs/d{index + 1}"} for index in range(length)}
    return {"$ref": "#/$defs/d0", "$defs": {**links, f"d{length}": {"type": "string"}}}


def fanned(width: int) -> dict[str, Any]:
    """Every schema refers to all that come after it, through one list of them."""
    return {
        "anyOf": [{"$ref": "#/$defs/all"}] * width,
        "$defs": {"all": {"anyOf": [{"type": "null"}] * width}},
    }


def held_in_halves(depth: int) -> dict[str, Any]:
    """Each level refers to the next one twice: a search that forgets where it was doubles with each."""
    links = {f"d{at}": {"anyOf": [{"$ref": f"#/$defs/d{at + 1}"}] * 2} for at in range(depth)}
    return {"$ref": "#/$defs/d0", "$defs": {**links, f"d{depth}": {}}}


@pytest.mark.parametrize(
    "shape",
    [
        chained,
        fanned,
        held_in_halves,
        lambda size: {"properties": {f"p{at}": {"type": "string"} for at in range(size // 5)}},
        lambda size: {"enum": [{"a": at} for at in range(size)]},
        lambda size: {"anyOf": [{"pattern": "a{1,2}"}] * (size // 16)},
        lambda size: {"anyOf": [{"pattern": "(a" * (size // 8)}] * 2},
        lambda size: {"$ref": "#/" + "a/" * size},
    ],
)
def test_the_cost_of_the_check_grows_as_the_schema_does(shape: Callable[[int], dict[str, Any]]) -> None:
    def work(size: int) -> Callable[[], None]:
        schema = shape(size)
        return lambda: check_schema(schema, ())

    assert growth(work, 300) < 1.2


def test_the_schemas_of_a_request_share_one_bound() -> None:
    half = {"enum": [None] * (MAX_NODES // 2)}
    check_schemas([(half, ("first",))])
    with pytest.raises(InvalidField, match=f"more than {MAX_NODES} values in all") as caught:
        check_schemas([(half, ("first",)), (half, ("second",))])
    assert caught.value.loc == ("second",)
    text = {"title": "x" * (MAX_TEXT_CHARS - 5)}
    check_schemas([(text, ())] * 4)
    with pytest.raises(InvalidField, match=f"{MAX_REQUEST_TEXT_CHARS} characters"):
        check_schemas([(text, ())] * 5)
    with pytest.raises(InvalidField, match="repetitions"):
        check_schemas([({"pattern": "a{600}"}, ()), ({"pattern": "b{600}"}, ())])


def test_a_circle_is_named_where_it_stands() -> None:
    circle = {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
    assert refused({"properties": {"x": {"type": "null"}}, **circle})[0] == ("$defs", "a")


def optional(count: int) -> dict[str, Any]:
    return {"type": "object", "properties": {f"p{at}": {"type": "string"} for at in range(count)}}


@pytest.mark.parametrize(
    ("least", "more", "loc"),
    [
        (optional(MAX_OPTIONAL), optional(MAX_OPTIONAL + 1), ("properties",)),
        (
            {"items": optional(MAX_OPTIONAL // 2), "anyOf": [optional(MAX_OPTIONAL // 2)] * 3},
            {"items": optional(MAX_OPTIONAL // 2), "anyOf": [optional(MAX_OPTIONAL // 2)] * 4},
            ("anyOf", 3, "properties"),
        ),
        (
            {**optional(2000), "required": [f"p{at}" for at in range(1800)]},
            {**optional(2000), "required": [f"p{at}" for at in range(1700)]},
            ("properties",),
        ),
        ({"anyOf": [{"pattern": "a"}] * 100}, {"anyOf": [{"pattern": "a"}] * 101}, ("anyOf", 100, "pattern")),
        ({"pattern": ".*" * 20}, {"pattern": ".*" * 21}, ("pattern",)),
        ({"pattern": r"\*[*+?{]" * 40}, {"pattern": r"[*]?\\*\d{2}" * 7}, ("pattern",)),
        (
            {"patternProperties": {"^a+$": {}}},
            {"patternProperties": {".*" * 200: {}}},
            ("patternProperties",),
        ),
        ({"anyOf": [{"format": "date"}] * 50}, {"anyOf": [{"format": "date"}] * 51}, ("anyOf", 50, "format")),
        ({"anyOf": [{"minimum": 1}] * 100}, {"anyOf": [{"maximum": 1}] * 101}, ("anyOf", 100, "maximum")),
    ],
)
def test_what_costs_more_than_its_size_has_a_bound(
    least: dict[str, Any], more: dict[str, Any], loc: tuple[str | int, ...]
) -> None:
    check_schema(least, ())
    assert refused(more)[0] == loc


def test_the_cost_of_all_schemas_of_a_request_is_one() -> None:
    check_schemas([(optional(MAX_OPTIONAL // 2), (at,)) for at in range(4)])
    with pytest.raises(InvalidField, match="optional properties") as caught:
        check_schemas([(optional(MAX_OPTIONAL // 2), (at,)) for at in range(5)])
    assert caught.value.loc == (4, "properties")
