"""Constraints on a reply, a regex, a choice, a grammar or a schema, as vLLM's clients send them: `structured_outputs`,
and the older `guided_*`."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from models.errors import InvalidField, UnsupportedOption

Kind = Literal["regex", "choice", "grammar", "json"]

STRUCTURED = "structured_outputs"
KINDS: tuple[Kind, ...] = ("regex", "choice", "grammar", "json")
# By the option's name; `structured_outputs` names its kind itself.
GUIDED: Mapping[str, Kind] = {f"guided_{kind}": kind for kind in KINDS}
OPTIONS = frozenset({STRUCTURED, *GUIDED})

MAX_REGEX_CHARS = 8_192
MAX_CHOICES = 1_024
MAX_TEXT_CHARS = 65_536
MAX_NAMED_CHARS = 64
_RULE = re.compile(r"^[ \t]*+root[ \t]*+::=", re.MULTILINE)
_REFUSED = {
    "json_object": 'send response_format: {"type": "json_object"}',
    "structural_tag": "only regex, choice, grammar and json are offered",
}


@dataclass(frozen=True, slots=True)
class Constraint:
    """A constraint on the reply, with its place in the request."""

    kind: Kind
    value: Any
    loc: tuple[str, ...]


def select_constraint(given: Mapping[str, Any]) -> dict[str, Any]:
    """The one option among a request's that holds the reply to something, under its own name and with one kind in it.

    Raises `InvalidField` where it is malformed or cannot be had beside another option, and `UnsupportedOption` for what
    is not offered of it.
    """
    found = [
        constraint for name in given if name in OPTIONS for constraint in _constraints(name, given[name])
    ]
    if not found:
        return {}
    wanted, *others = found
    if others:
        raise InvalidField(others[0].loc, f"cannot be had beside {'.'.join(wanted.loc)}")
    if given.get("response_format", {}).get("type", "text") != "text":
        raise InvalidField(wanted.loc, "cannot be had beside response_format")
    if given.get("tools") and given.get("tool_choice") != "none":
        raise InvalidField(wanted.loc, "cannot be had beside tools")
    _CHECKS[wanted.kind](wanted)
    value = _schema(wanted) if wanted.kind == "json" else wanted.value
    return {wanted.loc[0]: {wanted.kind: value}}


def constraint_of(options: Mapping[str, Any]) -> Constraint | None:
    """The constraint among selected options."""
    for name in OPTIONS & options.keys():
        ((kind, value),) = options[name].items()
        return Constraint(kind, value, (name,) if name in GUIDED else (name, kind))
    return None


def engine_constraint(constraint: Constraint) -> dict[str, Any]:
    """The same in as few kinds as say it: a choice is a grammar."""
    if constraint.kind == "choice":
        return {"grammar": "root ::= " + " | ".join(map(_literal, constraint.value))}
    return {constraint.kind: constraint.value}


def _constraints(name: str, value: Any) -> list[Constraint]:
    if name in GUIDED:
        return [Constraint(GUIDED[name], value, (name,))]
    if not isinstance(value, Mapping):
        raise InvalidField((name,), "must be an object", kind="dict_type")
    # What clients send of vLLM's own at its default asks for nothing.
    asked = {key: each for key, each in value.items() if each is not None and each is not False}
    for key in asked:
        if key not in KINDS:
            reason = _REFUSED.get(key, "is internal to the engine and cannot be set by callers")
            raise UnsupportedOption(f"{name}.{key}"[:MAX_NAMED_CHARS], reason)
    return [Constraint(kind, asked[kind], (name, kind)) for kind in KINDS if kind in asked]


def _check_regex(wanted: Constraint) -> None:
    _check_text(wanted.value, wanted.loc, MAX_REGEX_CHARS)
    if "\0" in wanted.value:
        raise InvalidField(wanted.loc, "must hold no NUL character")


def _check_choice(wanted: Constraint) -> None:
    if not isinstance(wanted.value, list) or not 0 < len(wanted.value) <= MAX_CHOICES:
        raise InvalidField(wanted.loc, f"must be a list of 1 to {MAX_CHOICES} texts", kind="list_type")
    left = MAX_TEXT_CHARS
    for choice in wanted.value:
        _check_text(choice, wanted.loc, left)
        left -= len(choice)


def _check_grammar(wanted: Constraint) -> None:
    _check_text(wanted.value, wanted.loc, MAX_TEXT_CHARS)
    if not _RULE.search(wanted.value):
        raise InvalidField(wanted.loc, "must be EBNF as xgrammar reads it, with a rule root ::= …")


def _check_json(wanted: Constraint) -> None:
    if not isinstance(wanted.value, Mapping):
        _check_text(wanted.value, wanted.loc, MAX_TEXT_CHARS)


_CHECKS = {"regex": _check_regex, "choice": _check_choice, "grammar": _check_grammar, "json": _check_json}


def _check_text(value: Any, loc: tuple[str, ...], most: int) -> None:
    if not isinstance(value, str) or not value:
        raise InvalidField(loc, "must be a text, and not empty", kind="string_type")
    if len(value) > most:
        raise InvalidField(loc, f"must have at most {most} characters", kind="string_too_long")


def _schema(wanted: Constraint) -> Mapping[str, Any]:
    """A JSON Schema, which some clients send as a text."""
    schema = wanted.value
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
            # Half of a surrogate pair is no text that could be sent on.
            json.dumps(schema, ensure_ascii=False).encode()
        except (ValueError, RecursionError):
            raise InvalidField(
                wanted.loc, "must be a JSON Schema, or its JSON", kind="json_invalid"
            ) from None
    if not isinstance(schema, Mapping):
        raise InvalidField(wanted.loc, "must be a JSON Schema: an object", kind="dict_type")
    return schema


def _literal(text: str) -> str:
    """A text as EBNF writes it, which knows no pairs of surrogates."""
    return json.dumps(text, ensure_ascii=False)
