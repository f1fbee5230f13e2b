"""The most that is wrong with a body is bounded: no list or object that a caller fills makes an error for each item."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

import serve
from serve.http.request_body import RequestShape

MANY = 60_000
# Two for each of a thousand documents or texts, which may be one of two things.
MOST_ERRORS = 2_100
LISTS: dict[str, Any] = {
    "strings": ["a"] * MANY,
    "numbers": [0.5] * MANY,
    "objects": [{} for _ in range(MANY)],
    "unknown objects": [{"type": "?", "role": "?", "a": 1} for _ in range(MANY)],
    "lists": [[] for _ in range(MANY)],
}
FILLINGS = {
    **LISTS,
    "an object": {str(number): [] for number in range(MANY)},
    **{f"a list of {name}": [value] for name, value in LISTS.items()},
    **{f"messages of {name}": [{"role": "user", "content": value}] for name, value in LISTS.items()},
    **{f"calls of {name}": [{"role": "assistant", "tool_calls": value}] for name, value in LISTS.items()},
    **{f"a function of {name}": {"type": "function", "function": value} for name, value in LISTS.items()},
    **{
        f"{name} in a function": [{"type": "function", "function": {"name": value, "parameters": value}}]
        for name, value in LISTS.items()
    },
}


def shapes() -> list[type[RequestShape]]:
    for module in pkgutil.walk_packages(serve.__path__, "serve."):
        if module.name.split(".")[1] not in ("cluster", "cli", "mcp_server"):
            importlib.import_module(module.name)
    return sorted(set(_below(RequestShape)), key=lambda shape: shape.__name__)


def _below(shape: type[RequestShape]) -> Iterator[type[RequestShape]]:
    for one in shape.__subclasses__():
        yield one
        yield from _below(one)


@pytest.mark.parametrize("filling", FILLINGS, ids=lambda name: name.replace(" ", "-"))
def test_a_body_full_of_wrong_values_has_few_errors(filling: str) -> None:
    costly = {}
    for shape in shapes():
        for name, field in shape.model_fields.items():
            try:
                shape.model_validate({(field.alias or name): FILLINGS[filling]})
            except ValidationError as error:
                if error.error_count() > MOST_ERRORS:
                    costly[f"{shape.__name__}.{name}"] = error.error_count()
    assert costly == {}
