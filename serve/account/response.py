"""The answers on usage and limits, and the query of usage that a customer sends."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any, Literal, cast, get_args

from pydantic import AliasGenerator, BaseModel, BeforeValidator, ConfigDict, Field

from billing.books.preservation import Preservation
from billing.books.saving import Dimension
from billing.books.usage_report import PeriodUsage, UsageSum
from billing.caller import RATES, Caller, ProjectLimits, WindowState
from billing.ledger.balances import Spending
from billing.ledger.budget_settings import BudgetScope
from billing.ledger.budgets import BudgetState
from billing.periods import PeriodKind
from billing.price import usd
from billing.rollups.usage_sums import label_of
from serve.http.request_body import InvalidBody, Issue

GroupBy = Literal["day", "model", "route", "key", "person", "tag"]
GROUPS: tuple[GroupBy, ...] = get_args(GroupBy)
Scope = Literal["key", "project"]
MAX_DAYS = 366
DEFAULT_DAYS = 30
MAX_ROWS = 10_000
DEFAULT_ROWS = 1000
# Read for one answer: some hundredths of a second.
MOST_CHECKS = 10_000
_GROUPS = f"({'|'.join(GROUPS)})"
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_NUMBER = re.compile(r"[0-9]{1,9}")
# By the scopes of `counted_for`, and by the names of their limits.
States = Mapping[str, Mapping[str, WindowState]]

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
            f"Any of {', '.join(GROUPS)}, separated by commas, each once; `person` or `tag` with `day` alone, and of "
            "the project. Empty: the total alone. Default: `day`.",
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
        raise invalid_parameter("end", f"end must be 1 to {MAX_DAYS} days after start, which is {start}")
    scope = given.get("scope", "key")
    if scope not in get_args(Scope):
        raise invalid_parameter("scope", f"scope must be one of {', '.join(get_args(Scope))}")
    groups = _groups(given.get("group_by", "day"))
    if scope == "key" and label_of(groups) is not None:
        raise invalid_parameter("scope", "scope must be project for usage by person or tag")
    return UsageQuery(start, end, groups, cast(Scope, scope), _limit(given))


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
    raise invalid_parameter(name, f"{name} must be a day, such as 2026-11-01")


def _groups(text: str) -> tuple[GroupBy, ...]:
    names = text[:256].split(",") if text else []
    if not set(names) <= set(GROUPS) or len(set(names)) < len(names):
        raise invalid_parameter("group_by", f"group_by must be some of {', '.join(GROUPS)}, each once")
    kind = label_of(names)
    if kind is not None and not set(names) <= {kind, "day"}:
        raise invalid_parameter("group_by", f"group_by must be {kind}, or {kind} and day")
    return cast(tuple[GroupBy, ...], tuple(names))


def _limit(given: Mapping[str, str]) -> int:
    text = given.get("limit", str(DEFAULT_ROWS))
    if not _NUMBER.fullmatch(text) or not 1 <= int(text) <= MAX_ROWS:
        raise invalid_parameter("limit", f"limit must be an integer from 1 to {MAX_ROWS}")
    return int(text)


def invalid_parameter(name: str, message: str) -> InvalidBody:
    return InvalidBody((Issue("value_error", ("query", name), message),))


Usd = Annotated[float, BeforeValidator(usd)]
Seconds = Annotated[float, BeforeValidator(lambda seconds: round(seconds, 3))]
Moment = Annotated[str | None, BeforeValidator(lambda at: at and at.isoformat())]


class _Answer(BaseModel):
    """Made of billing's records, of which an amount is in `…_nano_usd`."""

    model_config = ConfigDict(
        from_attributes=True,
        alias_generator=AliasGenerator(validation_alias=lambda name: re.sub("_usd$", "_nano_usd", name)),
    )


class Budget(_Answer):
    """A budget that requests with this key are counted in. No credit is in it. With the scope `person`, each person
    whom the project's requests name has it: `GET /v1/limits` says nothing of what is used of it."""

    limit_usd: Usd
    used_usd: Usd | None
    held_usd: Usd | None
    remaining_usd: Usd | None
    resets_at: Moment
    scope: BudgetScope
    tag: str | None
    period: PeriodKind
    time_zone: str
    at_end: str = Field(description="For a chat that it has no room for: `refuse`, `flex` or `model:ID`.")
    land_from_percent: int = Field(description="Chats land from so much of it on, spent or held.")


class UsageSums(BaseModel):
    """Sums over usage that was charged."""

    requests: int
    prompt_tokens: int
    cached_tokens: int = Field(
        description="The part of the prompt tokens that the engine's prefix cache had."
    )
    completion_tokens: int
    tokens_saved: int = Field(description="Prompt tokens that compression kept from being sent.")
    cost_usd: float = Field(description="What was charged, without what was written off.")
    written_off_usd: float = Field(description="What was used beyond the limits and not charged.")
    saved_usd: float = Field(description="How much more the compressed prompts would have cost.")
    compression_usd: float = Field(description="What compressing them was charged.")
    net_saved_usd: float = Field(description="`saved_usd` less `compression_usd`.")


class UsageRow(UsageSums):
    """One group; it has the names that `group_by` asked for, and no others."""

    day: str | None = Field(None, description="The day (UTC) on which requests ended, such as 2026-11-22.")
    model: str | None = None
    route: str | None = Field(None, description="Such as `chat`; null for usage before routes were noted.")
    key: str | None = Field(None, description="The key's name.")
    key_id: str | None = None
    person: str | None = Field(None, description="Whom requests named: the keyed hash that is kept.")
    tag: str | None = Field(None, description="A request counts for each of its tags.")
    budgets: list[Budget] | None = Field(
        None, description="Of the person or the tag, now, where `group_by` is that alone and there are any."
    )


class PreservationRow(BaseModel):
    """Compressed chats of the project, whichever key asked, whose reply was scored again under the whole prompt. It
    does not see harm in later turns, and takes an answer that is right in other words for a changed one."""

    model: str
    kind: str = Field(
        description="Of the compressed blocks: `text`, `tool_text`, `tool_json`, with `+` between two."
    )
    checked_chats: int
    nats_per_token: float = Field(
        description="How much likelier a reply's token is after what was sent than after the whole prompt: 0 where "
        "nothing is lost. A mean of the chats, each within -1 to 4."
    )
    nats_low: float = Field(description="Of an interval that holds at every look, with 95%.")
    nats_high: float
    agreement: float = Field(description="Share of places with the same likeliest token after both prompts.")
    agreement_low: float
    agreement_high: float


class UsageReport(BaseModel):
    """Usage of a key, or of its project."""

    object: Literal["usage"] = "usage"
    scope: Scope
    start: str = Field(description="First day (UTC).")
    end: str = Field(description="First day (UTC) that is left out.")
    group_by: list[GroupBy]
    total: UsageSums = Field(description="Of the whole period, also where `data` was cut.")
    data: list[UsageRow] = Field(
        description="In the order of the groups; by person or tag, the most expensive first."
    )
    has_more: bool = Field(description="Whether there are more rows than `limit`.")
    preservation: list[PreservationRow] | None = Field(
        None,
        description="What compression changed in replies, where `group_by` has `model`: of the period's newest "
        f"{MOST_CHECKS:,} checked chats.",
    )


class Spend(_Answer):
    """Money of a limit. What is held belongs to requests that are being answered."""

    limit_usd: Usd | None = Field(description="Null: no limit.")
    used_usd: Usd = Field(description="What was charged less credits; below 0, it is paid in advance.")
    held_usd: Usd
    remaining_usd: Usd | None
    resets_at: Moment = Field(description="When `used_usd` begins again at 0.")


class Window(_Answer):
    """A limit over a sliding minute, or an hour or a day of the workspace's time zone."""

    limit: int
    remaining: int
    reset_s: Seconds = Field(description="Seconds until all of it is left again, if nothing is asked.")


class InFlight(_Answer):
    """Requests at once."""

    limit: int


class Rates(_Answer):
    """Limits of the project, of who else requests count for, or of a label; null where there is no such limit."""

    requests_per_minute: Window | None
    tokens_per_minute: Window | None
    max_in_flight: InFlight | None
    requests_per_hour: Window | None
    requests_per_day: Window | None
    tokens_per_hour: Window | None
    tokens_per_day: Window | None


class KeyLimits(Rates):
    """Limits of this key alone, with those that it was rotated from; null where it has no such limit."""

    total: Spend | None
    month: Spend | None


class WorkspaceLimits(Rates):
    """Limits and money of the workspace that pays."""

    billing_enabled: bool
    total: Spend
    month: Spend = Field(description="Of the calendar month (UTC).")


class Limits(_Answer):
    """Every limit that a request with this key meets; the tightest one decides."""

    object: Literal["limits"] = "limits"
    key: KeyLimits
    project: Rates
    workspace: WorkspaceLimits
    label_rates: dict[str, Rates] = Field(
        description="By tag of the project, and of `*`, each person: as one has them who has asked for nothing."
    )
    budgets: list[Budget]


def usage_body(
    asked: UsageQuery,
    found: PeriodUsage,
    kept: Sequence[Preservation] | None,
    budgets: Mapping[str, Sequence[BudgetState]],
) -> dict[str, Any]:
    """A `UsageReport`. `found` may have one row more than was asked for: then there are more. `budgets`: by person or
    tag."""
    told = {} if kept is None else {"preservation": [_preserved(row) for row in kept]}
    return {
        "object": "usage",
        "scope": asked.scope,
        "start": str(asked.start),
        "end": str(asked.end),
        "group_by": asked.group_by,
        "total": _sums(found.total),
        "data": [
            {**_group(row), **_sums(row), **_budgets(row, budgets)} for row in found.groups[: asked.limit]
        ],
        "has_more": len(found.groups) > asked.limit,
        **told,
    }


def _budgets(row: UsageSum, budgets: Mapping[str, Sequence[BudgetState]]) -> dict[str, Any]:
    found = [one for label in row.group.values() for one in budgets.get(label, ())]
    return {"budgets": [Budget.model_validate(one).model_dump() for one in found]} if found else {}


def _preserved(row: Preservation) -> dict[str, Any]:
    nats, agreement = row.nats, row.agreement
    return {
        **{str(name): value for name, value in row.group.items()},
        "checked_chats": row.checked_chats,
        "nats_per_token": nats.mean,
        "nats_low": nats.low,
        "nats_high": nats.high,
        "agreement": agreement.mean,
        "agreement_low": agreement.low,
        "agreement_high": agreement.high,
    }


def _group(row: UsageSum) -> dict[str, str | None]:
    # The names come from the database as a kind of text that orjson does not know.
    return {str(name): value if value or name != "route" else None for name, value in row.group.items()}


def _sums(row: UsageSum) -> dict[str, int | float]:
    # Not through pydantic, which takes ten times as long: there may be ten thousand rows.
    return {
        "requests": row.requests,
        "prompt_tokens": row.prompt_tokens,
        "cached_tokens": row.cached_tokens,
        "completion_tokens": row.completion_tokens,
        "tokens_saved": row.tokens_saved,
        "cost_usd": usd(row.cost_nano_usd),
        "written_off_usd": usd(row.written_off_nano_usd),
        "saved_usd": usd(row.saved_nano_usd),
        "compression_usd": usd(row.compression_nano_usd),
        "net_saved_usd": usd(row.net_saved_nano_usd),
    }


def limits_in_force(
    caller: Caller,
    spending: Spending,
    budgets: Sequence[BudgetState],
    states: States,
) -> Limits:
    own = {"total": spending.key_total, "month": spending.key_month}
    money = {name: getattr(spending, name) for name in ("billing_enabled", "total", "month")}
    return Limits.model_validate(
        {
            "key": own | _rates(caller.key_limits, states, "key"),
            "project": _rates(caller.limits, states, "project"),
            "workspace": money | _rates(caller.workspace_limits, states, "workspace"),
            "label_rates": {
                one: _rates(limits, states, f"tag {one}") for one, limits in caller.label_limits.items()
            },
            "budgets": budgets,
        }
    )


def _rates(limits: ProjectLimits, states: States, scope: str) -> dict[str, Any]:
    in_flight = limits.max_in_flight and {"limit": limits.max_in_flight}
    return dict.fromkeys(RATES) | dict(states.get(scope, {})) | {"max_in_flight": in_flight}
