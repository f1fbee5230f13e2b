"""The contract's section 2 as tables of fields and types, and what a JSON value lacks of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any


@dataclass(frozen=True)
class ListOf:
    """An array whose items have one kind."""

    item: Any


@dataclass(frozen=True)
class OneOf:
    """One of some strings."""

    words: tuple[str, ...]


@dataclass(frozen=True)
class Either:
    """Any of some kinds."""

    kinds: tuple[Any, ...]


@dataclass(frozen=True)
class Optional:
    """A field that may be absent."""

    kind: Any


# A kind is `str`, `int`, `float` (any JSON number), `bool`, `dict` (free-form), `object` (anything), one of the
# classes above, or a table of required fields. Properties that a table does not name are left alone.
Shape = Mapping[str, Any]

MODEL: Shape = {
    "id": str,
    "name": str,
    "context_length": int,
    "input_price_per_mtok": float,
    "output_price_per_mtok": float,
    "minimum_request_charge_usd": float,
}
CATALOG_MODEL: Shape = {**MODEL, "blurb": str, "is_default": bool}
CATALOG: Shape = {
    "pricing_version": int,
    "collection_threshold_cents": int,
    "models": ListOf(CATALOG_MODEL),
}
USAGE: Shape = {"prompt_tokens": int, "completion_tokens": int, "total_tokens": int}
METERING: Shape = {"persisted": bool, "status": OneOf(("persisted", "degraded", "not_applicable"))}
BILLING: Shape = {
    "input_price_per_mtok": float,
    "output_price_per_mtok": float,
    "minimum_request_charge_usd": float,
    "minimum_applied": bool,
    "request_cost_usd": float,
}
SERVICE: Shape = {"billing": BILLING, "metering": METERING}
COMPLETION: Shape = {
    "id": str,
    "object": str,
    "created": int,
    "model": str,
    "choices": ListOf(dict),
    "usage": USAGE,
    "service": SERVICE,
}
ISSUE: Shape = {
    "type": str,
    "loc": ListOf(Either((str, int))),
    "msg": str,
    "input": Optional(object),
    "ctx": Optional(dict),
}
# The contract has `detail`; `error` is what OpenAI's clients print.
ERROR: Shape = {
    "detail": Either((str, ListOf(ISSUE))),
    "error": {"message": str, "type": str, "param": Either((str, None)), "code": str},
}


def rows(name: str, shape: Shape) -> list[Any]:
    """Parameters `(field, kind)` with an id that names the line of section 2 which each row checks."""
    import pytest

    return [pytest.param(field, kind, id=f"2 {name}: {field}") for field, kind in shape.items()]


def mismatches(value: Any, kind: Any, where: str = "body") -> list[str]:
    """What in the value is not as its kind says, each with its place; empty where all is well."""
    return list(_mismatches(value, kind, where))


def _mismatches(value: Any, kind: Any, where: str) -> Iterator[str]:
    if isinstance(kind, Mapping):
        yield from _missing_or_wrong(value, kind, where)
    elif isinstance(kind, ListOf):
        if not isinstance(value, list):
            yield f"{where}: {value!r} is no array"
            return
        for index, item in enumerate(value):
            yield from _mismatches(item, kind.item, f"{where}[{index}]")
    elif isinstance(kind, Either):
        found = [mismatches(value, each, where) for each in kind.kinds]
        if all(found):
            yield from min(found, key=len)
    elif not _is(value, kind):
        yield f"{where}: {value!r} is no {kind}"


def _missing_or_wrong(value: Any, shape: Shape, where: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{where}: {value!r} is no object"
        return
    for name, kind in shape.items():
        if name in value:
            inner = kind.kind if isinstance(kind, Optional) else kind
            yield from _mismatches(value[name], inner, f"{where}.{name}")
        elif not isinstance(kind, Optional):
            yield f"{where}.{name}: is missing"


def _is(value: Any, kind: Any) -> bool:
    if isinstance(kind, OneOf):
        return value in kind.words
    if kind is None:
        return value is None
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if kind is float:
        return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)
    return isinstance(value, kind)
