"""A request's bytes as a typed request, or a list of what is wrong with them: one parse, one validation, one limit.

The framework's own path is not used: it takes NaN for a number, echoes whole prompts back in its issues, and
reports malformed JSON without saying why.
"""

import json
import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError, from_json
from starlette.requests import Request

from models.options.messages import values_in

MAX_ISSUES = 20
MAX_INPUT_CHARS = 256
MAX_LOC_CHARS = 64
# Set by the JSON parser: deeper nesting than this ends the parse.
MAX_NESTING = 200
# Objects and lists cost a hundred times what the same bytes of text do; this many cost less than a tenth of a second.
MAX_VALUES = 65_536
# Numbers cost a fifth of that: a body that may be lists of token ids may hold so many, parsed in a tenth of a second.
MAX_TOKEN_IDS = 2**20

ABSENT: Any = object()

_JSON_TYPE = re.compile(r"application/(json|[\w.!#$&^-]+\+json)", re.IGNORECASE)
_CHARSET = re.compile(r"charset\s*=\s*\"?([^\s;\"]+)\"?", re.IGNORECASE)
_AT = re.compile(r"(?P<reason>.*) at line (?P<line>\d+) column (?P<column>\d+)", re.DOTALL)
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Pydantic speaks of Python's types; callers speak JSON.
_WORDS = {"dict_type": "Input should be an object", "model_type": "Input should be an object"}

Body = TypeVar("Body", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Issue:
    """One thing that is wrong, as the contract's ValidationIssue. `input` is ABSENT unless it is short."""

    type: str
    loc: tuple[str | int, ...]
    msg: str
    input: Any = ABSENT
    ctx: Mapping[str, Any] | None = None

    def as_dict(self) -> dict[str, Any]:
        issue: dict[str, Any] = {"type": self.type, "loc": list(self.loc), "msg": self.msg}
        if self.input is not ABSENT:
            issue["input"] = self.input
        if self.ctx:
            issue["ctx"] = dict(self.ctx)
        return issue


class InvalidBody(ValueError):
    """The body cannot be read as what the route takes. Holds one to `MAX_ISSUES` issues."""

    def __init__(self, issues: tuple[Issue, ...]) -> None:
        super().__init__("; ".join(f"{'.'.join(map(str, issue.loc))}: {issue.msg}" for issue in issues))
        self.issues = issues


class RequestShape(BaseModel):
    """Base of all requests' shapes: strict types, since a string taken for a number hides a client's mistake until it
    costs money; `null` counts as absent; properties unknown to us have no effect."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _null_counts_as_absent(cls, body: Any) -> Any:
        if not isinstance(body, dict):
            return body
        return {name: value for name, value in body.items() if value is not None}


def at_most(entries: int) -> BeforeValidator:
    """Refuses an object of more entries before any of them is looked at: pydantic would make an error for each."""

    def check(given: Any) -> Any:
        if isinstance(given, dict) and len(given) > entries:
            bound = {"max_length": entries}
            raise PydanticCustomError("too_long", "Object should have at most {max_length} entries", bound)
        return given

    return BeforeValidator(check)


def parse_body(
    raw: bytes, content_type: str | None, model_type: type[Body], *, most: int = MAX_VALUES
) -> Body:
    """Read a JSON object of the given shape and of `most` values; of duplicate keys the last one counts. Raises
    `InvalidBody`."""
    return check_shape(parse_json(raw, content_type, most=most), model_type)


def parse_json(raw: bytes, content_type: str | None, *, most: int = MAX_VALUES) -> Any:
    """Read JSON whose shape is to be checked, of `most` values, no more than `MAX_VALUES` of them lists, objects, keys
    and strings. Raises `InvalidBody`."""
    _check_content_type(content_type)
    return _parse_json(raw, most)


def check_shape(value: Any, model_type: type[Body]) -> Body:
    """A value out of parsed JSON as the given shape. Raises `InvalidBody`, its paths as if the value were the body."""
    try:
        return model_type.model_validate(value)
    except ValidationError as error:
        found = error.errors(include_url=False)[:MAX_ISSUES]
        raise InvalidBody(tuple(map(_issue, found))) from None


def _check_content_type(content_type: str | None) -> None:
    if content_type is None or not content_type.strip():
        return
    media_type, _, parameters = content_type.partition(";")
    charset = _CHARSET.search(parameters)
    if not _JSON_TYPE.fullmatch(media_type.strip()):
        message = "The content type should be application/json"
    elif charset and charset[1].lower() not in {"utf-8", "utf8"}:
        message = "The charset should be utf-8"
    else:
        return
    raise InvalidBody((Issue("content_type", ("header", "content-type"), message, _short(content_type)),))


def _parse_json(raw: bytes, most: int) -> Any:
    if not raw.strip():
        raise InvalidBody((Issue("missing", ("body",), "The body is empty; a JSON object is required"),))
    if _holds_too_much(raw, most):
        message = f"The body holds more than {most} values and object keys"
        if most > MAX_VALUES:
            message += f", or more than {MAX_VALUES} that are no numbers"
        raise InvalidBody((Issue("too_many_values", ("body",), message, ctx={"max_values": most}),))
    try:
        return from_json(raw, allow_inf_nan=False, cache_strings="keys")
    except ValueError as error:
        raise InvalidBody((_malformed(raw, str(error)),)) from None


def _holds_too_much(raw: bytes, most: int) -> bool:
    of_any_kind = min(most, MAX_VALUES)
    if values_in(raw, enough=of_any_kind) <= of_any_kind:
        return False
    # Of what costs more than a number, a mark each; those within strings count too.
    costly = raw.count(b"[") + raw.count(b"{") + raw.count(b'"') // 2
    return most == of_any_kind or costly > MAX_VALUES or values_in(raw, enough=most) > most


def _malformed(raw: bytes, parser_message: str) -> Issue:
    """Say what the parser found and where. The column counts bytes, and so does the offset from the start."""
    at = _AT.fullmatch(parser_message)
    if at is None:
        return Issue("json_invalid", ("body",), f"Malformed JSON: {parser_message}")
    line, column = int(at["line"]), int(at["column"])
    offset = max(0, _line_start(raw, line) + column - 1)
    kind, reason = _reason(raw, offset, at["reason"])
    message = f"Malformed JSON: {reason} (line {line}, column {column}, byte {offset})"
    return Issue(kind, ("body", offset), message, ctx={"line": line, "column": column, "offset": offset})


def _line_start(raw: bytes, line: int) -> int:
    # Bisected, since a body may be eight million empty lines.
    return bisect_left(range(len(raw) + 1), line - 1, key=lambda end: raw.count(b"\n", 0, end))


def _reason(raw: bytes, offset: int, reason: str) -> tuple[str, str]:
    if raw.startswith(_BYTE_ORDER_MARK):
        return "json_invalid", "a byte order mark precedes the JSON"
    if raw[offset : offset + 3] in {b"NaN", b"Inf"}:
        return "json_invalid", "NaN and Infinity are not JSON numbers"
    if reason.startswith("recursion limit"):
        return "json_too_deep", f"nested deeper than {MAX_NESTING} levels"
    if reason.startswith("invalid unicode"):
        return "json_invalid", "a string is not valid UTF-8"
    return "json_invalid", reason


def _issue(error: ErrorDetails) -> Issue:
    kind = error["type"]
    # Of a missing field, pydantic shows the object around it, which the caller knows.
    given = ABSENT if kind == "missing" else _short(error["input"])
    ctx = {name: _plain(value) for name, value in error.get("ctx", {}).items()}
    return Issue(kind, ("body", *_path(error["loc"])), _WORDS.get(kind, error["msg"]), given, ctx or None)


def _path(loc: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """The path in the caller's terms: pydantic marks a bad key with one step more, and keys may be long."""
    steps = loc[:-1] if loc and loc[-1] == "[key]" else loc
    return tuple(
        step if isinstance(step, int) or len(step) <= MAX_LOC_CHARS else step[:MAX_LOC_CHARS] + "…"
        for step in steps
    )


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)


def _short(value: Any) -> Any:
    """The value if its JSON is short, else ABSENT. Never writes out a long value to find that it is long."""
    if _measure(value, MAX_INPUT_CHARS) < 0:
        return ABSENT
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return ABSENT
    return value if len(text) <= MAX_INPUT_CHARS and not _holds_huge_integer(value) else ABSENT


def _holds_huge_integer(value: Any) -> bool:
    """Whether an integer in it is too large for JSON as most readers, and our writer, know it: 64 bits."""
    if isinstance(value, dict):
        return any(map(_holds_huge_integer, value.values()))
    if isinstance(value, list):
        return any(map(_holds_huge_integer, value))
    return isinstance(value, int) and not -(2**63) <= value < 2**64


def _measure(value: Any, left: int) -> int:
    """`left` less the characters that the value takes at least; gives up once that is negative."""
    if isinstance(value, str):
        return left - len(value) - 2
    if isinstance(value, dict):
        value = [part for pair in islice(value.items(), max(left, 0)) for part in pair]
    elif not isinstance(value, list):
        return left - len(repr(value))
    left -= 2
    for item in value:
        if left < 0:
            return left
        left = _measure(item, left)
    return left


def refuse_oversized_body(request: Request) -> None:
    """Raises `InvalidBody` when the body passed the server's limit."""
    limit = getattr(request.state, "body_too_large", None)
    if limit is not None:
        message = f"the request is larger than this server's limit of {limit} bytes"
        raise InvalidBody(
            (Issue(type="request_too_large", loc=("body",), msg=message, ctx={"max_bytes": limit}),)
        )
