"""Dashboards and rules by themselves: well made, and nothing in them that pith does not export or explain."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from billing.books.usage_report import Glance, total
from serve.metrics.families import FAMILIES
from serve.metrics.ledger_metrics import glance_families, tenant_families
from tests.monitoring.files import (
    DASHBOARDS,
    FOLDER,
    PAGES,
    ROOT,
    alerts,
    board,
    metrics_of,
    panels,
    program,
    queries,
    rules,
)

SUFFIX = re.compile(r"_(bucket|count|sum)$")
# Of Prometheus itself, and what the rules record.
OTHERS = {"up"}
PROCESS = {
    f"process_{name}"
    for name in ("cpu_seconds_total", "resident_memory_bytes", "open_fds", "max_fds", "start_time_seconds")
}


def test_there_is_a_dashboard_of_each_subject() -> None:
    assert [path.stem for path in DASHBOARDS] == [
        "pith-compression",
        "pith-engines",
        "pith-money",
        "pith-service",
    ]


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_has_what_grafana_asks_of_one(path: Path) -> None:
    found = board(path)
    assert (
        found["uid"] == path.stem and found["title"] and found["description"] and found["schemaVersion"] >= 39
    )
    variables = {variable["name"]: variable for variable in found["templating"]["list"]}
    assert (
        variables["datasource"]["type"] == "datasource" and variables["datasource"]["query"] == "prometheus"
    )
    ids = [panel["id"] for panel in found["panels"]]
    assert len(set(ids)) == len(ids)
    assert len(panels(path)) >= 8
    for panel in panels(path):
        assert_is_whole(panel)
    # What is chosen is used, and what is used can be chosen.
    used = set(re.findall(r"\$(?:\{(\w+)\}|([a-z]\w*))", str(found["panels"])))
    assert {first or second for first, second in used} == set(variables)


def assert_is_whole(panel: dict[str, Any]) -> None:
    title = panel["title"]
    assert title and len(panel["description"]) > 10, title
    assert panel["type"] in ("timeseries", "stat", "table"), title
    assert panel["fieldConfig"]["defaults"]["unit"], title
    assert panel["targets"] and all(target["expr"] for target in panel["targets"]), title
    assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]), title
    for part in (panel, *panel["targets"]):
        assert part["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, title


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_no_panel_lies_over_another_or_beside_the_board(path: Path) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in board(path)["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken and at["x"] + at["w"] <= 24, panel["title"]
        taken |= cells


def exported() -> set[str]:
    ours = {row.name + ("_total" if row.kind == "counter" else "") for row in FAMILIES.values()}
    return ours | PROCESS | OTHERS


def test_every_metric_that_is_asked_for_is_exported() -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    asked = {
        SUFFIX.sub("", name) if name.startswith("pith_") else name
        for query in queries()
        for name in metrics_of(query.expression)
    }
    asked |= {SUFFIX.sub("", name) for rule in rules() for name in metrics_of(rule["expr"])}
    own = {name for name in asked if not name.startswith("vllm:")} - recorded
    assert own <= exported()


def test_what_servers_read_in_one_ledger_is_added_up_nowhere() -> None:
    nothing = Glance(batches={}, lines={}, spent={}, limited=0)
    families = [*glance_families(nothing), *tenant_families({}, total([]))]
    shared = "|".join([*(family.name for family in families), "pith_webhook_deliveries_waiting"])
    asked = [query for query in queries() if re.search(rf"\b(?:{shared})\b", query.expression)]
    doubled = re.compile(rf"\bsum(?: by \([^)]*\))? ?\((?:{shared})\b")
    assert len(asked) >= 7 and [str(query) for query in asked if doubled.search(query.expression)] == []


def test_an_expressions_metrics_are_told_from_its_labels_and_words() -> None:
    found = metrics_of(
        'sum by (le, pith_label) (rate(vllm:a_total{pith_model="pith_x"}[5m])) / on (b) up > pith:c:rate5m'
    )
    assert found == {"vllm:a_total", "up", "pith:c:rate5m"}


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_an_alert_says_how_bad_it_is_and_has_its_page(alert: dict[str, Any]) -> None:
    name = alert["alert"]
    assert alert["labels"]["severity"] in ("critical", "warning", "info") and "for" in alert
    annotations = alert["annotations"]
    assert annotations["summary"] and annotations["description"]
    page = ROOT / annotations["runbook_url"]
    assert page == PAGES / f"{name}.md"
    text = page.read_text()
    assert text.startswith(f"# {name}\n") and f"Severity `{alert['labels']['severity']}`" in text
    assert "\n## First look\n\n```bash\n" in text and "\n## What to do\n\n- " in text
    assert f"| [{name}]({name}.md) | {alert['labels']['severity']} |" in (PAGES / "README.md").read_text()


def test_no_page_is_of_an_alert_that_there_is_not() -> None:
    assert {path.stem for path in PAGES.glob("*.md")} == {alert["alert"] for alert in alerts()} | {"README"}


def test_promtool_finds_nothing_wrong_with_rules_and_configuration() -> None:
    for arguments in (["rules", "alerts.yaml"], ["config", "prometheus.yml"]):
        done = subprocess.run(
            [program("promtool"), "check", *arguments], cwd=FOLDER, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
