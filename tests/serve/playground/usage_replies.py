"""What `GET /v1/usage` says of a month of invented requests."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

_MODELS = {"pith-mini": 5, "pith-base": 3, "pith-lexical": 1}
_ROUTES = {"chat": 6, "compress": 2, "responses": 1}


def usage_reply(url: str) -> dict[str, Any]:
    """The reply to a request for it, by day, model, route, person or tag."""
    query = parse_qs(urlsplit(url).query)
    (group,), (first,) = query["group_by"], query["start"]
    if group in _LABELS:
        return _by_label(group, int(query["limit"][0]))
    start = datetime.fromisoformat(first).replace(tzinfo=UTC)
    end = datetime.now(UTC)
    days = [start + timedelta(days=at) for at in range((end - start).days + 1)]
    # Weekends are quiet, and one day had nothing.
    parts: Mapping[str, int] = {
        day.date().isoformat(): (2 if day.weekday() > 4 else 9) + at % 5
        for at, day in enumerate(days)
        if at % 11 != 7
    }
    if group != "day":
        parts = _MODELS if group == "model" else _ROUTES
    rows = [{group: name, **_sums(weight * (40 if group != "day" else 1))} for name, weight in parts.items()]
    total = {name: sum(row[name] for row in rows) for name in _sums(1)}
    return {"object": "usage", "group_by": [group], "total": total, "data": rows, "has_more": False}


_LABELS = {"person": 700, "tag": 3}
_BUDGETS = [
    {"period": "day", "used_usd": 1.7, "limit_usd": 2.0},
    {"period": "total", "used_usd": 12.5, "limit_usd": 100.0},
]


def _by_label(group: str, limit: int) -> dict[str, Any]:
    """Of seven hundred people and three tags, the most expensive first; every other one has budgets."""
    number = _LABELS[group]
    rows = [
        {
            group: f"psn_{at:016x}" if group == "person" else f"<img src=x onerror=ran.push({at})>",
            **_sums(number - at),
            **({} if at % 2 else {"budgets": _BUDGETS}),
        }
        for at in range(min(number, limit))
    ]
    return {"object": "usage", "group_by": [group], "data": rows, "has_more": number > limit}


def _sums(weight: int) -> dict[str, Any]:
    return {
        "requests": 12 * weight,
        "prompt_tokens": 9_400 * weight,
        "cached_tokens": 1_200 * weight,
        "completion_tokens": 2_100 * weight,
        "tokens_saved": 5_000 * weight,
        "cost_usd": 0.0213 * weight,
        "written_off_usd": 0.0,
        "saved_usd": 0.0081 * weight,
        "compression_usd": 0.0011 * weight,
        "net_saved_usd": 0.007 * weight,
    }
