"""What requests of the admin API may hold. Of a change, what is not named stays, and null means none."""

from decimal import Decimal
from typing import Annotated, Any

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field

from billing.accounts.key_terms import MAX_LIMIT_NANO_USD, NO_TERMS, KeyChange, KeyTerms, RouteName
from billing.adjustments.adjustment import Kind
from billing.caller import MAX_WEIGHT, ProjectLimits
from billing.collections.collection import State
from billing.price import NANO_PER_USD
from serve.ops.shapes.moments import utc

MOST_USD = Decimal(MAX_LIMIT_NANO_USD) / NANO_PER_USD
Usd = Annotated[Decimal, Field(ge=0, le=MOST_USD, decimal_places=9, max_digits=19, description="US dollars.")]
Rate = Annotated[int, Field(ge=1, le=2**53, strict=True)]
Name = Annotated[str, Field(min_length=1, max_length=64)]
_KEY_LIMITS = (
    "requests_per_minute",
    "tokens_per_minute",
    "max_in_flight",
    "allowed_models",
    "allowed_routes",
)


class AdminBody(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    def given(self, *names: str) -> dict[str, Any]:
        """Those of these fields that the request names."""
        return {name: getattr(self, name) for name in names if name in self.model_fields_set}


class WorkspaceChange(AdminBody):
    spend_limit_usd: Usd | None = None
    monthly_limit_usd: Usd | None = None
    billing_enabled: bool | None = Field(None, description="Whether requests may be charged.")

    def settings(self) -> dict[str, Any]:
        """Those that the request names, as `Accounts.change_workspace` takes them."""
        values = {
            f"{name}_nano_usd": nano_usd(amount)
            for name in ("spend_limit", "monthly_limit")
            for amount in self.given(f"{name}_usd").values()
        }
        if self.billing_enabled is not None:
            values["billing_enabled"] = self.billing_enabled
        return values


class NewWorkspace(WorkspaceChange):
    name: Name


class ProjectChange(AdminBody):
    metered: bool | None = Field(None, description="Whether usage is recorded and charged.")
    requests_per_minute: Rate | None = None
    tokens_per_minute: Rate | None = None
    max_in_flight: Rate | None = None
    weight: Annotated[int, Field(ge=1, le=MAX_WEIGHT, strict=True)] | None = None
    compression: dict[str, Any] | None = Field(
        None, description="How its chats are compressed unless a request says so itself; null: not at all."
    )

    def settings(self) -> dict[str, Any]:
        """Those that the request names, as `Accounts.change_project` takes them."""
        named = self.given(*ProjectLimits.__dataclass_fields__, "metered", "compression")
        # Of these null says nothing.
        return {
            name: value
            for name, value in named.items()
            if value is not None or name not in ("metered", "weight")
        }

    def limits(self) -> ProjectLimits:
        """Of a new project."""
        values = self.settings()
        return ProjectLimits(
            **{name: values[name] for name in ProjectLimits.__dataclass_fields__ if name in values}
        )


class NewProject(ProjectChange):
    workspace: str = Field(max_length=64, description="Id or name.")
    name: Name


class KeySettings(AdminBody):
    expires_at: Annotated[AwareDatetime | None, AfterValidator(utc)] = Field(
        None, description="By the database's clock; null: never."
    )
    allowed_models: list[str] | None = Field(None, max_length=100, description="null: all.")
    allowed_routes: list[RouteName] | None = Field(None, description="null: all.")
    requests_per_minute: Rate | None = None
    tokens_per_minute: Rate | None = None
    max_in_flight: Rate | None = None
    spend_limit_usd: Usd | None = None
    monthly_limit_usd: Usd | None = None

    def change(self) -> KeyChange:
        values = self.given("expires_at", *_KEY_LIMITS)
        for name in ("spend_limit", "monthly_limit"):
            if f"{name}_usd" in self.model_fields_set:
                values[f"{name}_nano_usd"] = nano_usd(getattr(self, f"{name}_usd"))
        return KeyChange(values)

    def terms(self) -> KeyTerms:
        """Of a new key. Raises `InvalidAccount`."""
        return self.change().applied_to(NO_TERMS)


class NewKey(KeySettings):
    project: str = Field(max_length=130, description="Id, or `WORKSPACE/NAME`.")
    name: Name = "key"


class Rotation(AdminBody):
    overlap_s: int = Field(
        86_400, ge=0, le=366 * 86_400, description="Seconds that the old key goes on working."
    )


class CollectionCut(AdminBody):
    workspace: str = Field(max_length=64, description="Id or name.")


class CollectionMark(AdminBody):
    state: State
    reference: str | None = Field(None, max_length=256)
    note: str | None = Field(None, max_length=1024)


class NewReconciliation(AdminBody):
    full: bool = Field(False, description="Read every event again, also those that were proven before.")
    rebuild: bool = Field(False, description="First set every balance to what its rows add up to.")


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
    since: Annotated[AwareDatetime | None, AfterValidator(utc)] = Field(
        None, description="With `request_id`: how far to look back, unless for 35 days."
    )
    usd: Decimal | None = Field(
        None,
        ge=-(10**9),
        le=10**9,
        decimal_places=9,
        description="Of an adjustment: below 0 is owed less. Of a refund: all that is left, unless given.",
    )
    reason: str = Field(min_length=1, max_length=500)


def nano_usd(usd: Decimal | None) -> int | None:
    return None if usd is None else int(usd * NANO_PER_USD)
