"""The ledger's metrics at a scrape: fresh, kept for a while, missing while the ledger is away, never waited for."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from prometheus_client.core import GaugeMetricFamily, Metric

from billing.books.usage_report import UsageSum
from billing.store.migration import upgrade
from serve.metrics import ledger_metrics
from serve.metrics.ledger_metrics import LedgerMetrics, Reading, tenant_families
from tests.serve.metrics.readings import of_families


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_ledger_shows_its_numbers_and_whether_it_answers(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    asyncio.run(upgrade(url))
    found = of_families(LedgerMetrics(url, tenants=2).collect())
    assert found["pith_ledger_up"] == 1
    assert found['pith_batch_lines{state="waiting"}'] == found['pith_batches{status="in_progress"}'] == 0
    assert found['pith_workspaces_spent{percent="80"}'] == found["pith_workspaces_limited"] == 0
    assert found['pith_tenant_month_usd{workspace="other"}'] == 0


def test_no_metric_names_a_workspace_unless_that_was_asked_for(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    asyncio.run(upgrade(url))
    found = of_families(LedgerMetrics(url, tenants=0).collect())
    assert not [name for name in found if "workspace=" in name]


def test_while_the_ledger_is_away_its_numbers_are_missing_and_it_is_said_to_be_down(tmp_path: Path) -> None:
    found = of_families(LedgerMetrics(f"sqlite:///{tmp_path}/no/folder.db", tenants=5).collect())
    assert found == {"pith_ledger_up": 0}


def test_it_is_asked_again_only_once_its_answer_is_old() -> None:
    clock, asked = Clock(), 0

    def read() -> list[Metric]:
        nonlocal asked
        asked += 1
        return [GaugeMetricFamily("asked", "", asked)]

    reading = Reading(read, 15, clock)
    for now, expected in ((0, 1), (14, 1), (15, 2), (29, 2)):
        clock.now = now
        reading.begin()
        (family,) = reading.found() or ()
        assert family.samples[0].value == expected


def test_a_ledger_that_hangs_keeps_its_last_numbers_for_a_while_and_is_asked_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ledger_metrics, "PATIENCE_S", 0.01)
    clock, hangs, asked = Clock(), threading.Event(), 0
    hangs.set()

    def read() -> list[Metric]:
        nonlocal asked
        asked += 1
        hangs.wait()
        return []

    reading = Reading(read, 15, clock)
    reading.begin()
    assert reading.found() == []
    hangs.clear()
    clock.now = 20
    reading.begin()
    assert reading.found() == []
    clock.now = 40
    reading.begin()
    assert reading.found() is None and asked == 2
    hangs.set()


def test_a_customer_called_other_is_added_to_the_others() -> None:
    line = UsageSum({}, 1, 10, 5, 0, 2 * 10**9)
    found = of_families(tenant_families({"acme": line, "other": line}, line))
    assert found['pith_tenant_month_usd{workspace="acme"}'] == 2
    assert found['pith_tenant_month_usd{workspace="other"}'] == 4
    assert found['pith_tenant_month_tokens{kind="prompt",workspace="other"}'] == 20
