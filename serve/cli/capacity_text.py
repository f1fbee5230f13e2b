"""Says what of a configuration fits where, and what does not, as `pith config check --node` prints it."""

from __future__ import annotations

from collections.abc import Sequence

from serve.cli.table import as_table
from serve.config.capacity.fit import Verdict, check_fit
from serve.config.node import parse_node
from serve.config.settings import ConfigError, Settings

COLUMNS = ("application", "started", "where", "memory", "verdict")


def fit_of(settings: Settings, nodes: Sequence[str]) -> tuple[bool, str]:
    """Whether everything fits, and a table. Raises `ConfigError` for a machine that is none."""
    try:
        verdicts = check_fit(settings, [parse_node(node) for node in nodes])
    except ValueError as error:
        raise ConfigError(f"--node: {error}") from error
    rows = [
        {
            "application": verdict.application,
            "started": verdict.started,
            "where": verdict.where,
            "memory": verdict.memory,
            "verdict": _said(verdict),
        }
        for verdict in verdicts
    ]
    missing = sum(not verdict.fits for verdict in verdicts)
    machines = " + ".join(nodes)
    said = (
        f"{missing} of {len(verdicts)} replicas do not fit {machines}"
        if missing
        else f"everything fits {machines} (memory is an estimate)"
    )
    return not missing, f"{as_table(COLUMNS, rows)}\n{said}"


def _said(verdict: Verdict) -> str:
    if verdict.waits:
        return "fits when others are idle"
    return verdict.trouble or "fits"
