"""What somebody asks of a running server: to take its configuration again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from serve.cluster.reload.plan import Code

WITHIN_S, MOST_S = 1800.0, 86_400.0


@dataclass(frozen=True, slots=True)
class Asked:
    """`config`: the file; None: the one that the server was started from. `actor`: who asks, for the audit log.
    `within_s`: what does not run by then is given up, and with it the whole reload."""

    actor: str
    config: Path | None = None
    dry_run: bool = False
    code: Code = "none"
    within_s: float = WITHIN_S

    def request(self) -> dict[str, Any]:
        """As it is sent; the server finds out by itself who asks."""
        return {
            "config": None if self.config is None else str(self.config),
            "dry_run": self.dry_run,
            "code": self.code,
            "within_s": self.within_s,
        }


def asked_by(actor: str, request: Mapping[str, Any]) -> Asked:
    """Raises `ValueError` for what is no request of this version."""
    config, dry_run, code = request.get("config"), request.get("dry_run", False), request.get("code", "none")
    if not (config is None or isinstance(config, str)) or not isinstance(dry_run, bool):
        raise ValueError("config must be a path, and dry_run true or false")
    if code not in get_args(Code):
        raise ValueError(f"code must be one of {', '.join(get_args(Code))}")
    within_s = request.get("within_s", WITHIN_S)
    if not isinstance(within_s, int | float) or isinstance(within_s, bool) or not 0 < within_s <= MOST_S:
        raise ValueError(f"within_s must be seconds, above 0 and at most {MOST_S:g}")
    return Asked(actor, None if config is None else Path(config), dry_run, code, float(within_s))
