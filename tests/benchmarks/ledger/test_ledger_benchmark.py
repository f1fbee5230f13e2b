"""`benchmarks.ledger` end to end, and that it reports nothing where the ledger did not do what was measured."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from benchmarks.ledger import report
from benchmarks.ledger.__main__ import arguments, measured, scenarios
from benchmarks.ledger.load import BadRun, Bench
from benchmarks.ledger.postgres_server import postgres_binaries
from benchmarks.ledger.report import Scenario
from billing.errors import LedgerUnavailable
from billing.ledger.ledger import Ledger
from billing.ledger.spool import Spool
from billing.store.database import FakeOutageDatabase, open_database
from billing.store.migration import upgrade

SHORT = ["--seconds", "0.2", "--rounds", "2", "--clients", "1,4", "--workspaces", "2"]


@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgresql", marks=pytest.mark.integration)])
def test_a_run_reports_every_sample_and_the_medians(database: str, tmp_path: Path) -> None:
    if database == "postgresql" and postgres_binaries() is None:
        pytest.skip("PostgreSQL was not found; install it (Debian: apt-get install postgresql) to run these")
    options = arguments([*SHORT, "--databases", database])
    folder, runs = measured(options)
    made = report.report(report.facts(), folder, runs)
    as_json, as_text, picture = made.write(tmp_path)

    body = json.loads(as_json.read_text())
    for fact in ("command", "commit", "machine", "versions", "databases on"):
        assert body["facts"][fact]
    [scenario] = body["scenarios"]
    assert (scenario["database"], scenario["clients"], scenario["workspaces"]) == (database, 4, 2)
    assert len(scenario["runs"]) == 2
    for run in scenario["runs"]:
        # Each client's first at least, however slow the machine is.
        assert len(run["hold_ms"]) == len(run["settle_ms"]) >= 4
        assert run["settled"] > len(run["settle_ms"])
        assert run["pairs_per_s"] > 0 < run["settlements_per_s"]
    assert f"| {database} | 4 | 2 | " in as_text.read_text()
    assert picture.read_bytes().startswith(b"\x89PNG")
    panels = made.pictures["ledger"].panels
    assert [panel.title for panel in panels] == ["throughput", "hold", "settle", "added"]
    assert all(panel.lines for panel in panels)


@pytest.fixture
async def outage(tmp_path: Path) -> AsyncIterator[FakeOutageDatabase]:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    await upgrade(url)
    database = FakeOutageDatabase(open_database(url))
    yield database
    await database.close()


@pytest.fixture
async def bench(outage: FakeOutageDatabase, tmp_path: Path) -> AsyncIterator[Bench]:
    spool = Spool(tmp_path / "spool.db")
    ledger = Ledger(outage, spool)
    bench = Bench(outage, ledger)
    await bench.prepare()
    yield bench
    await ledger.close()
    await spool.close()


async def test_a_settlement_that_went_to_the_spool_is_no_figure(
    bench: Bench, outage: FakeOutageDatabase
) -> None:
    hold = await bench.hold(await bench.new_caller())
    outage.is_down = True
    with pytest.raises(BadRun, match="degraded"):
        await bench.settle(hold)


async def test_a_ledger_that_does_not_answer_is_no_figure(bench: Bench, outage: FakeOutageDatabase) -> None:
    outage.is_down = True
    with pytest.raises(LedgerUnavailable):
        await bench.run(clients=2, workspaces=1, seconds=0.1)


async def test_a_ledger_that_does_not_reconcile_is_no_figure(
    bench: Bench, outage: FakeOutageDatabase
) -> None:
    await bench.new_caller()
    await outage.write(lambda c: c.exec_driver_sql("UPDATE workspaces SET posted_nano_usd = 1"))
    with pytest.raises(BadRun, match="reconcile"):
        await bench.run(clients=2, workspaces=1, seconds=0.1)


async def test_settlements_that_are_not_in_the_ledger_are_no_figure(bench: Bench) -> None:
    with pytest.raises(BadRun, match="3 settlements were made and 2 events"):
        await bench.verify(3, 2)


def test_fewer_clients_than_workspaces_are_left_out() -> None:
    options = arguments(["--databases", "sqlite", "--clients", "1,16", "--workspaces", "1,16"])
    assert scenarios(options) == [
        Scenario("sqlite", 1, 1),
        Scenario("sqlite", 16, 1),
        Scenario("sqlite", 16, 16),
    ]
    with pytest.raises(SystemExit, match="workspaces"):
        scenarios(arguments(["--clients", "1", "--workspaces", "2"]))


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--databases", "mysql"], "'mysql' is neither sqlite nor postgresql"),
        (["--clients", "0"], "'0' is not a number from 1"),
        (["--url", "sqlite:///file.db"], "sqlite is not postgresql"),
        (["--url", "no url"], "the database URL is not a URL"),
    ],
)
def test_a_wrong_argument_is_named(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        arguments(words)
    assert complaint in capsys.readouterr().err
