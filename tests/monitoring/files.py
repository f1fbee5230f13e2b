"""The dashboards and alert rules of `configs/monitoring/`, as tests read them."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.integration.missing import cannot_run

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "configs/monitoring"
DASHBOARDS = sorted((FOLDER / "dashboards").glob("*.json"))
PAGES = ROOT / "docs/operations/alerts"
METRIC = re.compile(r"(?<![\w:])((?:pith[:_]|vllm:|process_)[\w:]+|up)(?![\w(])")


@dataclass(frozen=True)
class Query:
    """A panel's."""

    board: str
    panel: str
    expression: str

    def __str__(self) -> str:
        return f"{self.board}: {self.panel}: {self.expression}"


def board(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def panels(path: Path) -> list[dict[str, Any]]:
    """Without rows."""
    return [panel for panel in board(path)["panels"] if panel["type"] != "row"]


def queries() -> list[Query]:
    return [
        Query(path.stem, panel["title"], target["expr"])
        for path in DASHBOARDS
        for panel in panels(path)
        for target in panel["targets"]
    ]


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alerts() -> list[dict[str, Any]]:
    return [rule for rule in rules() if "alert" in rule]


def metrics_of(expression: str) -> set[str]:
    """The metrics that an expression names; labels and what functions and words it uses are none."""
    without_strings = re.sub(r'"[^"]*"', '""', expression)
    without_labels = re.sub(r"\{[^}]*\}|\b(?:by|on|ignoring|group_left)\s*\([^)]*\)", " ", without_strings)
    return set(METRIC.findall(without_labels))


def program(name: str) -> str:
    """Of Debian's package prometheus, which brings both; its service need not run."""
    found = shutil.which(name)
    if found is None:
        cannot_run(f"{name} was not found; install it (Debian: apt-get install prometheus) to run these")
    return found
