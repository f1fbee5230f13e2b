"""Workspaces, projects and keys in plain values: money as decimal text, moments in ISO 8601."""

from __future__ import annotations

import json
from dataclasses import asdict, is_dataclass
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from serve.reports.moments import stamp

if TYPE_CHECKING:
    from billing.accounts.account_lists import ListedKey, ListedProject
    from billing.accounts.account_sql import Project, Workspace
    from billing.accounts.key_sql import KeyRecord

ACTIVE = "active"
NANO = 10**9


def state_of(revoked: str | None) -> dict[str, str]:
    return {"state": ACTIVE if revoked is None else f"{revoked} revoked"}


def workspace_fields(found: Workspace) -> dict[str, Any]:
    return {**fields_of(found), **state_of("workspace" if found.revoked_at else None)}


def project_fields(found: ListedProject) -> dict[str, Any]:
    return {"workspace": found.workspace.name, **fields_of(found.project), **state_of(found.revoked)}


def key_fields(key: KeyRecord) -> dict[str, Any]:
    """All but its secret. Spend is null of a key without a spend limit: it is counted for those that have one."""
    terms, balance = key.terms, key.balance
    return {
        "id": key.id,
        "project_id": key.project_id,
        "name": key.name,
        "created_at": stamp(key.created_at),
        "revoked_at": stamp(key.revoked_at),
        "expires_at": stamp(terms.expires_at),
        "last_used_at": stamp(key.last_used_at),
        "allowed_models": _names(terms.powers.models),
        "allowed_routes": _names(terms.powers.routes),
        "requests_per_minute": terms.limits.requests_per_minute,
        "tokens_per_minute": terms.limits.tokens_per_minute,
        "max_in_flight": terms.limits.max_in_flight,
        "spend_limit_usd": _usd(terms.spend_limit_nano_usd),
        "monthly_limit_usd": _usd(terms.monthly_limit_nano_usd),
        "posted_usd": None if balance is None else _usd(balance.posted_nano_usd),
        "held_usd": None if balance is None else _usd(balance.held_nano_usd),
        "month": None if balance is None else balance.month,
        "month_posted_usd": None if balance is None else _usd(balance.month_posted_nano_usd),
        "limits_of": key.limits_key_id,
    }


def listed_key_fields(found: ListedKey) -> dict[str, Any]:
    state = state_of(found.revoked)
    if found.revoked is None and found.key.has_expired:
        state = {"state": "expired"}
    owners = {"workspace": found.workspace.name, "project": found.project.name}
    return {**owners, "workspace_id": found.workspace.id, **key_fields(found.key), **state}


def with_objects(row: dict[str, Any]) -> dict[str, Any]:
    """With a project's compression as an object instead of JSON in a string."""
    if row.get("compression") is None:
        return row
    try:
        return {**row, "compression": json.loads(row["compression"])}
    except ValueError:
        return row


def fields_of(record: Workspace | Project) -> dict[str, Any]:
    """A flat row of any record of accounts."""
    assert is_dataclass(record)
    flat: dict[str, Any] = {}
    for name, value in asdict(record).items():
        if isinstance(value, dict):
            flat |= value
        elif name.endswith("_nano_usd"):
            flat[name.removesuffix("_nano_usd") + "_usd"] = _usd(value)
        elif isinstance(value, datetime):
            flat[name] = value.isoformat(timespec="seconds")
        else:
            flat[name] = value
    return flat


def _usd(nano_usd: int | None) -> str | None:
    return None if nano_usd is None else str(Decimal(nano_usd) / NANO)


def _names(some: frozenset[str] | None) -> list[str] | None:
    return None if some is None else sorted(some)
