"""What somebody asks of a running server: to take its configuration again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from serve.cluster.reload.plan import Code


@dataclass(frozen=True, slots=True)
class Asked:
    """`config`: the file; None: the one that the server was started from. `actor`: who asks, for the audit log."""

    actor: str
    config: Path | None = None
    dry_run: bool = False
    code: Code = "none"

    def request(self) -> dict[str, Any]:
        """As it is sent; the server finds out by itself who asks."""
        return {
            "config": None if self.config is None else str(self.config),
            "dry_run": self.dry_run,
            "code": self.code,
        }


def asked_by(actor: str, request: Mapping[str, Any]) -> Asked:
    """Raises `ValueError` for what is no request of this version."""
    config, dry_run, code = request.get("config"), request.get("dry_run", False), request.get("code", "none")
    if not (config is None or isinstance(config, str)) or not isinstance(dry_run, bool):
        raise ValueError("config must be a path, and dry_run true or false")
    if code not in get_args(Code):
        raise ValueError(f"code must be one of {', '.join(get_args(Code))}")
    return Asked(actor, None if config is None else Path(config), dry_run, code)
