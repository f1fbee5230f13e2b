"""Workspaces, projects and keys in answers."""

from typing import Any, Literal

from pydantic import Field

from billing.accounts.key_terms import RouteName
from serve.ops.shapes.fields import Answer, At, Month, Usd


class Workspace(Answer):
    id: str
    name: str
    billing_enabled: bool
    spend_limit_usd: Usd | None = Field(description="null: none.")
    monthly_limit_usd: Usd | None = Field(description="null: none.")
    posted_usd: Usd = Field(description="All charges of usage and all upward adjustments.")
    held_usd: Usd = Field(description="Set aside for requests that run.")
    month: Month = Field(description="The month that `month_posted_usd` is of.")
    month_posted_usd: Usd = Field(description="Less what was credited in the month.")
    created_at: At
    revoked_at: At | None
    collected_usd: Usd = Field(description="The part of `posted_usd` that was asked for in collections.")
    credited_usd: Usd
    state: Literal["active", "workspace revoked"]


class Workspaces(Answer):
    data: list[Workspace]
    next: str | None = Field(description="`cursor` of the next page; null: this is the last.")


class Project(Answer):
    id: str
    workspace_id: str
    name: str
    metered: bool
    requests_per_minute: int | None
    tokens_per_minute: int | None
    max_in_flight: int | None
    weight: int
    created_at: At
    revoked_at: At | None
    compression: dict[str, Any] | None = Field(description="How its chats are compressed; null: not at all.")


class ListedProject(Project):
    workspace: str = Field(description="The name of its workspace.")
    state: Literal["active", "workspace revoked", "project revoked"]


class Projects(Answer):
    data: list[ListedProject]
    next: str | None = Field(description="`cursor` of the next page; null: this is the last.")


class Forgotten(Answer):
    originals: int
    bytes: int


class Key(Answer):
    """All of a key but its secret. Spend is null of a key without a spend limit: it is counted for those that have
    one."""

    id: str
    project_id: str
    name: str
    created_at: At
    revoked_at: At | None
    expires_at: At | None
    last_used_at: At | None
    allowed_models: list[str] | None = Field(description="null: all.")
    allowed_routes: list[RouteName] | None = Field(description="null: all.")
    requests_per_minute: int | None
    tokens_per_minute: int | None
    max_in_flight: int | None
    spend_limit_usd: Usd | None
    monthly_limit_usd: Usd | None
    posted_usd: Usd | None
    held_usd: Usd | None
    month: Month | None
    month_posted_usd: Usd | None
    limits_of: str = Field(
        description="The key whose limits and spend it shares: itself, unless it was rotated."
    )


class MadeKey(Key):
    key: str = Field(description="The secret, shown this once.")


class RotatedKey(MadeKey):
    replaces: Key = Field(description="The old key, which ends after the overlap.")


class ListedKey(Key):
    workspace: str = Field(description="The name of its workspace.")
    workspace_id: str
    project: str = Field(description="The name of its project.")
    state: Literal["active", "workspace revoked", "project revoked", "key revoked", "expired"]


class Keys(Answer):
    data: list[ListedKey]
    next: str | None = Field(description="`cursor` of the next page; null: this is the last.")
