"""`pith models`: of a configuration, and of a running server, in each format."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from models.embedding_backends import RetrievalModel
from models.fake_engine import FakeEngine
from serve.cli.main import app
from serve.client.errors import PithError
from tests.integration.running import free_port
from tests.serve.loopback_service import CONFIG, Running, service


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
