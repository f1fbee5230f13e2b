"""Bodies and parameters of the admin API's requests. Of a change, what is not named stays, and null means none."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any

from fastapi import Path, Query
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    StrictBool,
    StrictInt,
)
from pydantic_core import CoreSchema, core_schema

from billing.accounts.account_sql import Page
from billing.accounts.keys import (
    MAX_LIMIT_NANO_USD,
    MAX_MODEL_CHARS,
    MAX_MODELS,
    NO_TERMS,
    KeyChange,
    KeyTerms,
    RouteName,
)
from billing.adjustments.adjustment import Kind
from billing.caller import LIMITS, MAX_WEIGHT, RATES
from billing.collections.collection import State
from billing.labels import TAG
from billing.price import NANO_PER_USD
from billing.store import dates
from billing.webhooks.endpoint import MAX_URL_CHARS, EventType

# Whole dollars, which a float has exactly: so does the document.
MOST_USD = Decimal(MAX_LIMIT_NANO_USD // NANO_PER_USD)
UNSIGNED = re.compile(r"[0-9]{1,10}([.][0-9]{1,9})?")
SIGNED = re.compile(r"-?[0-9]{1,10}([.][0-9]{1,9})?")


class Plain:
    """Of a decimal number: as text it has to be digits, at most nine after the point. The JSON schema says so."""

    def __init__(self, written: re.Pattern[str]) -> None:
        self._written = written

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._checked, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        found = handler(schema)
        for one in found["anyOf"]:
            if one["type"] == "string":
                one["pattern"] = f"^{self._written.pattern}$"
        return found

    def _checked(self, given: object) -> object:
        if isinstance(given, str) and self._written.fullmatch(given) is None:
            raise ValueError("text must be digits, with at most nine of them after the point")
        return given


Usd = Annotated[
    Decimal,
    Field(ge=0, le=MOST_USD, decimal_places=9, max_digits=19, description="US dollars."),
    Plain(UNSIGNED),
]
Owed = Annotated[Decimal, Field(ge=-(10**9), le=10**9, decimal_places=9), Plain(SIGNED)]
Rate = Annotated[StrictInt, Field(ge=1, le=2**53)]
Name = Annotated[str, Field(min_length=1, max_length=64)]
Model = Annotated[str, Field(min_length=1, max_length=MAX_MODEL_CHARS)]
Tag = Annotated[str, Field(pattern=f"^{TAG}$")]
TagOrEachPerson = Annotated[str, Field(pattern=rf"^(\*|{TAG})$")]
DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def dated(given: object) -> object:
    """Raises `ValueError` for what begins with no date: pydantic takes a number for seconds since 1970, a year too."""
    if isinstance(given, datetime) or (isinstance(given, str) and DATE.match(given)):
        return given
    raise ValueError("must be a date, or a date with a time, such as 2026-11-01T00:00:00Z")


def utc(moment: datetime | None) -> datetime | None:
    """UTC unless it names a zone. Raises `ValueError` for one that is in no year from 1 to 9999 there."""
    if moment is None:
        return None
    try:
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except OverflowError as error:
        raise ValueError("must be in a year from 1 to 9999, in UTC") from error


Dated = Annotated[AwareDatetime, BeforeValidator(dated), AfterValidator(utc)]
Moment = Annotated[
    Annotated[datetime, BeforeValidator(dated), AfterValidator(utc)] | None,
    Query(description="A moment; UTC unless it names a zone."),
]

# Documented alone: what refuses a month says it better.
Month = Annotated[
    str, Path(json_schema_extra={"pattern": f"^{dates.MONTH.pattern}$"}, description="Such as 2026-11.")
]


class AdminBody(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    def given(self, *names: str) -> dict[str, Any]:
        """Those of these fields that the request names."""
        return {name: getattr(self, name) for name in names if name in self.model_fields_set}

    def given_nano_usd(self, *names: str) -> dict[str, Any]:
        """The amounts of these fields `…_usd` that the request names."""
        return {
            f"{name}_nano_usd": nano_usd(usd) for name in names for usd in self.given(f"{name}_usd").values()
        }


class RateLimits(AdminBody):
    requests_per_minute: Rate | None = None
    tokens_per_minute: Rate | None = None
    max_in_flight: Rate | None = None
    requests_per_hour: Rate | None = None
    requests_per_day: Rate | None = None
    tokens_per_hour: Rate | None = None
    tokens_per_day: Rate | None = None


class WorkspaceChange(RateLimits):
    spend_limit_usd: Usd | None = None
    monthly_limit_usd: Usd | None = None
    billing_enabled: StrictBool | None = Field(None, description="Whether requests may be charged.")
    time_zone: str | None = Field(
        None,
        min_length=1,
        max_length=64,
        description="Of its hours, days, weeks and months: an IANA name. At first UTC.",
    )

    def settings(self) -> dict[str, Any]:
        """Those that the request names, as `Accounts.change_workspace` takes them."""
        values = self.given_nano_usd("spend_limit", "monthly_limit") | self.given(*RATES)
        if self.billing_enabled is not None:
            values["billing_enabled"] = self.billing_enabled
        if self.time_zone is not None:
            values["time_zone"] = self.time_zone
        return values


class NewWorkspace(WorkspaceChange):
    name: Name


class ProjectChange(RateLimits):
    metered: StrictBool | None = Field(None, description="Whether usage is recorded and charged.")
    weight: Annotated[StrictInt, Field(ge=1, le=MAX_WEIGHT)] | None = None
    compression: dict[str, Any] | None = Field(
        None, description="How its chats are compressed unless a request says so itself; null: not at all."
    )
    proof: StrictBool | None = Field(
        None,
        description="Whether its replies carry promises that their usage will be in the transparency log.",
    )
    person_required: StrictBool | None = Field(
        None, description="Whether its requests have to name a person."
    )
    allowed_tags: list[Tag] | None = Field(None, max_length=100, description="null: all; empty: none.")
    label_rates: dict[TagOrEachPerson, RateLimits] | None = Field(
        None,
        description="Limits by tag, and those of `*`, each person. They take the place of all before; null: none.",
    )

    def settings(self) -> dict[str, Any]:
        """Those that the request names, as `Accounts.change_project` takes them."""
        switches = ("metered", "proof", "person_required")
        named = self.given(*LIMITS, *switches, "compression", "allowed_tags")
        if "label_rates" in self.model_fields_set:
            named |= self.model_dump(include={"label_rates"}, exclude_none=True) or {"label_rates": None}
        # Of these null says nothing.
        return {
            name: value
            for name, value in named.items()
            if value is not None or name not in (*switches, "weight")
        }


class NewProject(ProjectChange):
    workspace: str = Field(max_length=64, description="Id or name.")
    name: Name


class KeySettings(RateLimits):
    expires_at: Dated | None = Field(None, description="By the database's clock; null: never.")
    allowed_models: list[Model] | None = Field(
        None, min_length=1, max_length=MAX_MODELS, description="null: all."
    )
    allowed_routes: list[RouteName] | None = Field(None, min_length=1, description="null: all.")
    spend_limit_usd: Usd | None = None
    monthly_limit_usd: Usd | None = None

    def change(self) -> KeyChange:
        values = self.given("expires_at", "allowed_models", "allowed_routes", *RATES)
        return KeyChange(values | self.given_nano_usd("spend_limit", "monthly_limit"))

    def terms(self) -> KeyTerms:
        """The terms of a new key. Raises `InvalidAccount`."""
        return self.change().applied_to(NO_TERMS)


class NewKey(KeySettings):
    project: str = Field(max_length=130, description="Id, or `WORKSPACE/NAME`.")
    name: Name = "key"


class Rotation(AdminBody):
    overlap_s: StrictInt = Field(
        86_400, ge=0, le=366 * 86_400, description="Seconds that the old key goes on working."
    )


class CollectionCut(AdminBody):
    workspace: str = Field(max_length=64, description="Id or name.")


class CollectionMark(AdminBody):
    state: State
    reference: str | None = Field(None, min_length=1, max_length=256)
    note: str | None = Field(None, min_length=1, max_length=1024)


class NewReconciliation(AdminBody):
    full: StrictBool = Field(False, description="Read every event again, also those that were proven before.")
    rebuild: StrictBool = Field(False, description="First set every balance to what its rows add up to.")


class NewAdjustment(AdminBody):
    kind: Kind
    workspace: str | None = Field(
        None, max_length=64, description="Id or name; of a refund only with `request_id`."
    )
    event_id: str | None = Field(None, max_length=64, description="Of a refund: the usage event.")
    request_id: str | None = Field(
        None,
        max_length=128,
        description="Of a refund, instead: the `X-Request-ID` of its request. With several usage events it is a 409.",
    )
    since: Dated | None = Field(
        None, description="With `request_id`: how far to look back, unless for 35 days."
    )
    usd: Owed | None = Field(
        None,
        description="Of an adjustment: below 0 is owed less. Of a refund: all that is left, unless given.",
    )
    reason: str = Field(min_length=1, max_length=500)


class NewWebhook(AdminBody):
    url: str = Field(
        pattern=r"^[A-Za-z]+://[!-~]+$", max_length=MAX_URL_CHARS, description="Where to POST, https."
    )
    workspace: str | None = Field(None, max_length=64, description="Id or name; null: of all workspaces.")
    events: list[EventType] = Field([], max_length=20, description="Only these; none: all.")


class Redelivery(AdminBody):
    webhook: str | None = Field(
        None, max_length=64, description="Only to this one; null: to all that it was for."
    )


def nano_usd(usd: Decimal | None) -> int | None:
    return None if usd is None else int(usd * NANO_PER_USD)


MOST = 500
Cursor = Annotated[
    str | None, Query(max_length=64, description="`next` of the page before; none: the first.")
]
Limit = Annotated[int, Query(ge=1, le=MOST, description="Rows of a page.")]
LIMIT = 100


def page_to_read(cursor: str | None, limit: int) -> Page:
    """The rows to read for a page: one more than it shows, which says that there is more."""
    return Page(limit + 1, cursor)


def page_of(rows: Sequence[dict[str, Any]], limit: int) -> dict[str, Any]:
    """`data`, and `next` where there is more."""
    shown = list(rows[:limit])
    return {"data": shown, "next": shown[-1]["id"] if len(rows) > limit else None}
