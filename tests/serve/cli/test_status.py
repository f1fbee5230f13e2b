"""`pith models` and `pith status`: models in each format, and the metrics and the ledger of a running server."""

from __future__ import annotations

import asyncio
import csv
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from billing.ledger.ledger import Ledger
from billing.ledger.spool import Spool
from billing.price import Cost, ModelPrice
from billing.usage import UsageFigures, now
from models.embedding_backends import RetrievalModel
from models.fake_engine import FakeEngine
from serve.cli.main import app
from serve.cli.status import Readings, model_load, readings_of, report, reports, show
from serve.client import PithError
from serve.config.settings import load_settings
from serve.money.ledger_setup import open_accounts
from tests.integration.running import free_port
from tests.migrated import migrated_file
from tests.serve.loopback_service import CONFIG, Running, service
from tests.serve.served import settings_document


class UnaskedRetriever(RetrievalModel):
    """It is listed, and nothing else."""


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    with service(tmp_path, FakeEngine(), retriever=UnaskedRetriever()) as found:
        yield found


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["models", *arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_models_of_a_configuration() -> None:
    head, first, *_ = run("--config", str(CONFIG)).splitlines()
    assert head.split()[:3] == ["id", "kind", "context_length"]
    assert first.split()[:4] == ["pith-mini", "chat", "16384", "0.10"]
    rows = json.loads(run("--config", str(CONFIG), "--json"))
    kinds = {row["id"]: row["kind"] for row in rows}
    assert kinds["pith-mini"] == "chat" and kinds["pith-lexical"] == "compression"
    assert rows[0]["output_usd_per_mtok"] == "0.40" and rows[0]["minimum_request_usd"] == "0.00001"
    table = list(csv.DictReader(run("--config", str(CONFIG), "--csv").splitlines()))
    assert [row["id"] for row in table] == list(kinds)


def test_a_running_server_says_the_same_of_all_that_it_lists_without_a_key(running: Running) -> None:
    served = json.loads(run("--url", f"{running.url}/v1/", "--json"))
    configured = json.loads(run("--config", str(CONFIG), "--json"))
    assert served == [row for row in configured if row["kind"] != "compression"]
    assert {row["kind"] for row in served} == {"chat", "embedding", "rerank"}
    assert all(row["input_usd_per_mtok"] and row["minimum_request_usd"] for row in served)


def test_while_the_ledger_is_away_models_are_listed_without_prices(running: Running) -> None:
    running.database.is_down = True
    served = json.loads(run("--url", running.url, "--json"))
    assert len(served) > 1 and all(row["input_usd_per_mtok"] is None for row in served)


def test_a_server_that_is_away_and_two_formats_at_once_are_refused() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    error = CliRunner().invoke(app, ["models", "--url", url]).exception
    assert isinstance(error, PithError) and f"{url} cannot be reached" in str(error)
    assert "--url" in str(error)
    assert "cannot be used together" in str(CliRunner().invoke(app, ["models", "--csv", "--json"]).exception)


METRICS = """# TYPE pith_chat_requests_in_flight gauge
pith_chat_requests_in_flight{model="alpha"} 3.0
pith_chat_requests_waiting{model="alpha"} 1.0
pith_chat_prompt_tokens_total{model="alpha"} 100.0
pith_chat_completion_tokens_total{model="alpha"} %d
pith_compress_jobs_waiting{model="lexical"} 2.0
pith_replicas_running{model="alpha"} 1.0
pith_replicas_wanted{model="alpha"} 2.0
pith_model_awake{model="alpha",replica="0"} 0.0
pith_ingress_replicas 2.0
pith_http_requests_in_flight 4.0
pith_spool_waiting_events 5.0
pith_spool_refused_events 0.0
python_info{version="3"} 1.0
"""
COST = Cost(26 * 10**6, 26 * 10**6, False)


@pytest.fixture
def ops() -> Iterator[str]:
    """An ops port whose completion tokens grow by 50 at each scrape."""
    scrapes = iter(range(0, 10_000, 50))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write((METRICS % next(scrapes)).encode())

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "pith.db").write_bytes(asyncio.run(migrated_file()))
    path = tmp_path / "pith.yaml"
    path.write_text(yaml.safe_dump(settings_document(tmp_path)))
    return path


async def spend(config: Path) -> None:
    """Charges one request of `alpha`: 0.026 US dollars."""
    settings = load_settings(config)
    database, accounts = await open_accounts(settings)
    spool = Spool(settings.billing.spool_path)
    ledger, at = Ledger(database, spool), now()
    version = await ledger.publish_prices([ModelPrice("alpha", 1, 1, 0)], now=at)
    await accounts.create_workspace("acme", now=at)
    await accounts.create_project("acme", "main", now=at)
    _, token = await accounts.keys.create("acme/main", "key", now=at)
    caller = await accounts.authenticate(token, now=at)
    hold = await ledger.hold(
        caller,
        model_id="alpha",
        pricing_version=version,
        amount_nano_usd=COST.nano_usd,
        request_id="request",
        now=at,
    )
    figures = UsageFigures(100, 40, 0, stream=False)
    await ledger.settle(hold, figures=figures, cost=COST, outcome="completed", now=at)
    for each in (ledger, spool, database):
        await each.close()


def test_a_model_that_is_away_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    why = 'BrokenCheckpoint: beta: /models/beta/model.safetensors: was cut off: "x"'
    label = why.replace('"', r"\"")
    shown = f'pith_model_away{{model="beta",reason="{label}"}} 1.0\n'
    found = report(readings_of(shown + METRICS % 110), readings_of(METRICS % 10), 1.0, {})
    assert {row["model"]: row["away"] for row in found["models"]}["beta"] == why
    show(found, "http://here", False, clears=False)
    printed = capsys.readouterr().out
    assert f"beta is away: {why}" in printed


def test_a_models_load_is_of_the_seconds_between_two_scrapes() -> None:
    before, after = readings_of(METRICS % 10), readings_of(METRICS % 110)
    assert model_load(after, before, 4.0, "alpha") == {
        "model": "alpha",
        "replicas_running": 1,
        "replicas_wanted": 2,
        "away": None,
        "is_awake": False,
        "in_flight": 3,
        "waiting": 1,
        "tokens_per_s": 25.0,
        "generated_per_s": 25.0,
    }
    # One that was started again in between.
    assert model_load(before, after, 4.0, "alpha")["generated_per_s"] == 0
    assert model_load(after, before, 4.0, "lexical")["waiting"] == 2
    assert model_load(after, before, 4.0, "lexical")["replicas_running"] is None
    assert model_load(after, before, 4.0, "lexical")["is_awake"] is None


@pytest.mark.usefixtures("one_day")
def test_a_server_with_its_models_and_what_was_spent_today(ops: str, config: Path) -> None:
    asyncio.run(spend(config))
    given = ["status", "--metrics", ops, "--config", str(config), "--every", "0.2"]
    found = json.loads(CliRunner().invoke(app, [*given, "--json"]).stdout)
    assert (found["http_processes"], found["http_requests_in_flight"]) == (2, 4)
    assert found["spool_waiting"] == 5 and float(found["spend_today_usd"]) == 0.026
    alpha, lexical = found["models"]
    assert (alpha["model"], alpha["requests_today"], alpha["spend_today_usd"]) == ("alpha", 1, "0.026")
    assert 0 < alpha["generated_per_s"] <= 250
    assert (lexical["model"], lexical["waiting"], lexical["requests_today"]) == ("lexical", 2, 0)
    shown = CliRunner().invoke(app, given).stdout
    assert "2 HTTP processes, 4 HTTP requests in flight" in shown and "spool: 5 events wait" in shown
    assert "spent today (UTC): 0.026 USD" in shown and "1/2 asleep" in shown


def test_a_server_whose_ledger_is_elsewhere_is_shown_without_money(
    ops: str, config: Path, tmp_path: Path
) -> None:
    (tmp_path / "pith.db").unlink()
    given = ["status", "--metrics", ops, "--config", str(config), "--every", "0.2"]
    found = json.loads(CliRunner().invoke(app, [*given, "--json"]).stdout)
    assert found["spend_today_usd"] is None and found["models"][0]["in_flight"] == 3
    assert "the ledger is not here" in CliRunner().invoke(app, given).stdout
    assert not (tmp_path / "pith.db").exists()


def test_an_ops_port_that_is_away_or_something_else_is_one_line(config: Path, ops: str) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    error = CliRunner().invoke(app, ["status", "--metrics", url, "--config", str(config)]).exception
    assert isinstance(error, PithError) and f"{url} cannot be reached" in str(error)


def test_the_ledger_is_read_while_the_tokens_are_counted() -> None:
    now = 100.0
    waited: list[float] = []

    def takes(seconds: float) -> None:
        nonlocal now
        now += seconds

    def scraped() -> Readings:
        takes(0.1)
        return readings_of(METRICS % 0)

    def spent() -> None:
        takes(0.7)

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        takes(seconds)

    looked = reports(scraped, spent, 2.0, clock=lambda: now, sleep=sleep)
    began = now
    next(looked)
    assert now - began == pytest.approx(0.1 + 2.0 + 0.1)
    next(looked)
    assert waited == pytest.approx([1.3, 1.3])
    next(reports(scraped, spent, 0.5, clock=lambda: now, sleep=sleep))
    assert waited[-1] == 0
