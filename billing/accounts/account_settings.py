"""What an operator may set of a workspace and of a project, checked before it reaches a row."""

from collections.abc import Mapping
from typing import Any

from billing.accounts.key_terms import MAX_LIMIT_NANO_USD
from billing.caller import ProjectLimits
from billing.errors import InvalidAccount

# It is read with every key.
MAX_COMPRESSION_CHARS = 4096
_SPEND_LIMITS = ("spend_limit_nano_usd", "monthly_limit_nano_usd")
_RATES = tuple(ProjectLimits.__dataclass_fields__)


def workspace_columns(values: Mapping[str, Any]) -> dict[str, Any]:
    """The named settings of a workspace, as its row has them. Raises `InvalidAccount`."""
    _refuse_others("workspace", values, (*_SPEND_LIMITS, "billing_enabled"))
    for name in _SPEND_LIMITS:
        checked_limit(name, values.get(name))
    return dict(values)


def project_columns(values: Mapping[str, Any]) -> dict[str, Any]:
    """The named settings of a project, as its row has them. Raises `InvalidAccount`."""
    _refuse_others("project", values, (*_RATES, "metered", "compression"))
    try:
        ProjectLimits(**{name: values[name] for name in _RATES if name in values})
    except ValueError as error:
        raise InvalidAccount(str(error)) from error
    checked_compression(values.get("compression"))
    return dict(values)


def checked_limit(field: str, limit: int | None) -> int | None:
    if limit is not None and not 0 <= limit <= MAX_LIMIT_NANO_USD:
        raise InvalidAccount(f"{field}: must be between 0 and {MAX_LIMIT_NANO_USD}, not {limit}")
    return limit


def checked_compression(compression: str | None) -> str | None:
    if compression is not None and not 1 <= len(compression) <= MAX_COMPRESSION_CHARS:
        raise InvalidAccount(
            f"compression: must have 1 to {MAX_COMPRESSION_CHARS} characters, not {len(compression)}"
        )
    return compression


def _refuse_others(kind: str, values: Mapping[str, Any], settings: tuple[str, ...]) -> None:
    for name in values:
        if name not in settings:
            raise InvalidAccount(f"{name}: a {kind} has no such setting")
