"""Limits of accounts: how each is set and used up, how its refusal is told, and whom it spares.

A new setting of accounts, scope of budgets or rate is an entry of `SPEND_LIMITS`, `BUDGET_OWNERS` or `RATES`; what ends
a key's rights, one of `access_limits`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, get_args

from billing.accounts.keys import KeyTerms
from billing.caller import EACH_PERSON, NO_LIMITS, ProjectLimits
from billing.ledger.budget_settings import SCOPES
from billing.periods import PERIODS
from tests.serve.money.bypass.shapes import CHAT_NANO_USD, CHAT_TOKENS, CHAT_USD, TAG, Json, Shape

if TYPE_CHECKING:
    from tests.serve.money.bypass.house import Account

Kind = Literal["plain", "rotated, the old", "rotated, the new", "unmetered"]
KINDS: tuple[Kind, ...] = get_args(Kind)
# Whose a budget of each scope is, as it is set.
BUDGET_OWNERS: dict[str, Callable[[Account], list[str]]] = {
    "workspace": lambda account: [account.name],
    "project": lambda account: [f"{account.name}/metered"],
    "key": lambda account: [account.ids["plain"], account.ids["rotated, the new"]],
    "person": lambda account: [f"{account.name}/metered"],
    "tag": lambda account: [f"{account.name}/metered"],
}
Cause = Literal["money", "billing", "rate", "key", "model", "route", "person", "tag"]
# Status and code in the contract's form, OpenAI's and Anthropic's.
ANSWERS: dict[Cause, dict[str, tuple[int, str]]] = {
    "money": {"v1": (402, "quota_exceeded"), "openai": (402, "insufficient_quota")},
    "billing": {"v1": (402, "billing_disabled"), "openai": (402, "billing_not_active")},
    "rate": {"v1": (429, "rate_limit_exceeded"), "openai": (429, "rate_limit_exceeded")},
    "key": {"v1": (403, "invalid_api_key"), "openai": (401, "invalid_api_key")},
    "model": {"v1": (403, "model_not_allowed"), "openai": (404, "model_not_found")},
    "route": {"v1": (403, "route_not_allowed"), "openai": (403, "route_not_allowed")},
    "person": {"v1": (400, "person_required"), "openai": (400, "person_required")},
    "tag": {"v1": (400, "tag_not_allowed"), "openai": (400, "tag_not_allowed")},
}
ANTHROPIC: dict[Cause, tuple[int, str]] = {
    "money": (402, "billing_error"),
    "billing": (402, "billing_error"),
    "rate": (429, "rate_limit_error"),
    "key": (401, "authentication_error"),
    "model": (404, "not_found_error"),
    "route": (403, "permission_error"),
    "person": (400, "invalid_request_error"),
    "tag": (400, "invalid_request_error"),
}


def answer_of(cause: Cause, path: str) -> tuple[int, str]:
    base = path.split("/")[1]
    return ANTHROPIC[cause] if base == "anthropic" else ANSWERS[cause][base]


@dataclass(frozen=True)
class Limit:
    """A column: what it sets when the account is made, what its refusal says, and how it is used up."""

    name: str
    cause: Cause
    says: str = ""
    workspace: Json = field(default_factory=dict)
    project: ProjectLimits = NO_LIMITS
    key: KeyTerms = KeyTerms()  # noqa: RUF009
    setting: Callable[[Account], Awaitable[None]] | None = None
    # Afterwards no key can do what it could; None: chats use it up.
    cut: Callable[[Account], Awaitable[None]] | None = None
    # Used up while a request runs.
    is_of_running: bool = False
    is_of_keys: bool = False
    # Its requests name a person and a tag.
    is_of_labelled: bool = True
    spares: Callable[[Shape], str | None] = lambda shape: None

    def spared(self, shape: Shape, kind: Kind) -> str | None:
        """Why a cell is meant to be let in; None: it is not."""
        if self.cause in ("money", "billing") and kind == "unmetered":
            return "usage of a project that is not metered is neither held nor recorded"
        return self.spares(shape)

    @property
    def spenders(self) -> tuple[Kind, ...]:
        """Keys whose chats use it up for all: of rotated ones the other."""
        if self.cause in ("money", "billing") or self.workspace:
            return ("plain", "rotated, the new") if self.is_of_keys else ("plain",)
        return ("plain", "rotated, the new", "unmetered") if self.is_of_keys else ("plain", "unmetered")


def money_limits() -> Iterator[Limit]:
    for name, words in SPEND_LIMITS.items():
        of_it = f"{CHAT_USD} of the {words} of {CHAT_USD} is spent or held"
        set_to = {name: CHAT_NANO_USD}
        yield Limit(f"workspace {name}", "money", f"^workspace quota .*{of_it}", workspace=set_to)
        terms = KeyTerms(**set_to)
        yield Limit(f"key {name}", "money", f"^key quota .*{of_it}", key=terms, is_of_keys=True)
    for scope, period in product(SCOPES, PERIODS):

        async def setting(account: Account, scope: Any = scope, period: Any = period) -> None:
            await account.budget(scope, period)

        words = f"{CHAT_USD} in all" if period == "total" else f"{CHAT_USD} for each {period}, which resets"
        whose = f"tag {TAG}" if scope == "tag" else scope
        says = f"^{whose} quota .*{CHAT_USD} of the budget of {words}"
        name = f"budget of the {scope} per {period}"
        yield Limit(name, "money", says, setting=setting, is_of_keys=scope == "key")


SPEND_LIMITS = {
    "spend_limit_nano_usd": "spend limit",
    "monthly_limit_nano_usd": r"spend limit of this calendar month \(UTC\)",
}
# The labels that rates may be of, and how a refusal names them.
RATE_LABELS = {EACH_PERSON: "person", TAG: f"tag {TAG}"}
# What each rate is set to, and how its refusal names it.
RATES = {
    "requests_per_minute": (1, "1 requests a minute"),
    "tokens_per_minute": (CHAT_TOKENS, f"{CHAT_TOKENS} tokens a minute"),
    "max_in_flight": (1, "1 requests at the same time"),
    "requests_per_hour": (1, "1 requests an hour"),
    "requests_per_day": (1, "1 requests a day"),
    "tokens_per_hour": (CHAT_TOKENS, f"{CHAT_TOKENS} tokens an hour"),
    "tokens_per_day": (CHAT_TOKENS, f"{CHAT_TOKENS} tokens a day"),
}


def _counts_no_tokens(shape: Shape) -> str | None:
    return "a count of tokens uses none" if shape.row.name == "count_tokens" else None


def _asks_no_compression(shape: Shape) -> str | None:
    is_one = shape.compresses or shape.row.name.startswith("compress")
    return None if is_one else "it asks for no compression"


def rate_limits() -> Iterator[Limit]:
    for name, (most, words) in RATES.items():
        limits: Any = ProjectLimits(**{name: most})
        ways: Json = {"is_of_running": name == "max_in_flight"}
        if name.startswith("tokens"):
            ways["spares"] = _counts_no_tokens
        yield Limit(f"project {name}", "rate", f"^project rate .*: {words}", project=limits, **ways)
        yield Limit(
            f"workspace {name}", "rate", f"^workspace rate .*: {words}", workspace={name: most}, **ways
        )
        for label, whose in RATE_LABELS.items():

            async def setting(account: Account, rates: Json = {label: {name: most}}) -> None:  # noqa: B006
                await account.change_projects(label_rates=rates)

            yield Limit(f"{whose} {name}", "rate", f"^{whose} rate .*: {words}", setting=setting, **ways)
        ways |= {"key": KeyTerms(limits=limits), "is_of_keys": True}
        yield Limit(f"key {name}", "rate", f"^API key rate .*: {words}", **ways)


def access_limits() -> Iterator[Limit]:
    async def disable_billing(account: Account) -> None:
        await account.house.served.accounts.change_workspace(account.name, {"billing_enabled": False})

    async def end(account: Account) -> None:
        await account.change_keys(expires_at=datetime.now(UTC) - timedelta(seconds=1))

    async def allow_no_model(account: Account) -> None:
        await account.change_keys(allowed_models=["beta"])

    async def allow_no_compressor(account: Account) -> None:
        await account.change_keys(allowed_models=["alpha", "small", "order"])

    async def allow_no_route(account: Account) -> None:
        await account.change_keys(allowed_routes=["models"])

    yield Limit("workspace billing_enabled", "billing", "^billing is disabled", cut=disable_billing)
    yield Limit("workspace revoked_at", "key", cut=lambda account: account.revoke("workspace"))
    yield Limit("project revoked_at", "key", cut=lambda account: account.revoke("project"))
    yield Limit("key revoked_at", "key", cut=lambda account: account.revoke("key"))
    yield Limit("key expires_at", "key", cut=end)
    yield Limit("key models", "model", "API key may not use it$", cut=allow_no_model)
    yield Limit(
        "key models, not that of the compression",
        "model",
        "'lexical' does not exist or this API key may not use it$",
        cut=allow_no_compressor,
        spares=_asks_no_compression,
    )
    yield Limit(
        "project person_required",
        "person",
        cut=lambda account: account.change_projects(person_required=True),
        is_of_labelled=False,
        spares=_counts_no_tokens,
    )
    yield Limit(
        "project allowed_tags", "tag", cut=lambda account: account.change_projects(allowed_tags=["nightly"])
    )
    yield Limit("key routes", "route", "API key may not be used for", cut=allow_no_route)


LIMITS = {limit.name: limit for limit in (*money_limits(), *rate_limits(), *access_limits())}
