"""The query of `GET /v1/usage`: whole days, what to group by, whose usage, and how many rows."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Literal, cast, get_args

from billing.books.saving import Dimension
from serve.http.request_body import InvalidBody, Issue

GroupBy = Literal["day", "model", "route", "key"]
GROUPS: tuple[GroupBy, ...] = get_args(GroupBy)
Scope = Literal["key", "project"]
MAX_DAYS = 366
DEFAULT_DAYS = 30
MAX_ROWS = 10_000
DEFAULT_ROWS = 1000
_GROUPS = f"({'|'.join(GROUPS)})"
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_NUMBER = re.compile(r"[0-9]{1,9}")

PARAMETERS: list[dict[str, Any]] = [
    {"name": name, "in": "query", "required": False, "description": words, "schema": schema}
    for name, words, schema in (
        (
            "start",
            f"First day (UTC). Default: {DEFAULT_DAYS - 1} days before the last one.",
            {"type": "string", "format": "date"},
        ),
        (
            "end",
            f"First day (UTC) to leave out, at most {MAX_DAYS} days after `start`. Default: tomorrow.",
            {"type": "string", "format": "date"},
        ),
        (
            "group_by",
            f"Any of {', '.join(GROUPS)}, separated by commas, each once. Empty: the total alone. Default: `day`.",
            {"type": "string", "default": "day", "pattern": f"^({_GROUPS}(,{_GROUPS}){{0,3}})?$"},
        ),
        (
            "scope",
            "Whose usage: this key's, or that of all keys of its project.",
            {"type": "string", "enum": list(get_args(Scope)), "default": "key"},
        ),
        (
            "limit",
            "The most rows of `data`; the total is of all.",
            {"type": "integer", "minimum": 1, "maximum": MAX_ROWS, "default": DEFAULT_ROWS},
        ),
    )
]


@dataclass(frozen=True, slots=True)
class UsageQuery:
    """From `start` to before `end`, both whole days in UTC."""

    start: date
    end: date
    group_by: tuple[GroupBy, ...]
    scope: Scope
    limit: int

    @property
    def by(self) -> tuple[Dimension, ...]:
        return cast(tuple[Dimension, ...], self.group_by)

    @property
    def since(self) -> datetime:
        return datetime.combine(self.start, time(), UTC)

    @property
    def until(self) -> datetime:
        return datetime.combine(self.end, time(), UTC)


def usage_query(given: Mapping[str, str], *, today: date) -> UsageQuery:
    """Raises `InvalidBody`, which names the parameter."""
    end = _day(given, "end") or today + timedelta(days=1)
    start = _day(given, "start") or _days_before(end, DEFAULT_DAYS)
    if not start < end <= start + timedelta(days=min(MAX_DAYS, (date.max - start).days)):
        raise _invalid("end", f"end must be 1 to {MAX_DAYS} days after start, which is {start}")
    scope = given.get("scope", "key")
    if scope not in get_args(Scope):
        raise _invalid("scope", f"scope must be one of {', '.join(get_args(Scope))}")
    return UsageQuery(start, end, _groups(given.get("group_by", "day")), cast(Scope, scope), _limit(given))


def _days_before(end: date, days: int) -> date:
    return end - timedelta(days=days) if (end - date.min).days > days else date.min


def _day(given: Mapping[str, str], name: str) -> date | None:
    text = given.get(name)
    if text is None:
        return None
    try:
        if _DAY.fullmatch(text):
            return date.fromisoformat(text)
    except ValueError:
        pass
    raise _invalid(name, f"{name} must be a day, such as 2026-11-01")


def _groups(text: str) -> tuple[GroupBy, ...]:
    names = text[:256].split(",") if text else []
    if not set(names) <= set(GROUPS) or len(set(names)) < len(names):
        raise _invalid("group_by", f"group_by must be some of {', '.join(GROUPS)}, each once")
    return cast(tuple[GroupBy, ...], tuple(names))


def _limit(given: Mapping[str, str]) -> int:
    text = given.get("limit", str(DEFAULT_ROWS))
    if not _NUMBER.fullmatch(text) or not 1 <= int(text) <= MAX_ROWS:
        raise _invalid("limit", f"limit must be an integer from 1 to {MAX_ROWS}")
    return int(text)


def _invalid(name: str, message: str) -> InvalidBody:
    return InvalidBody((Issue("value_error", ("query", name), message),))
