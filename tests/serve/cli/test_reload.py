"""`pith reload` at a terminal: how it finds the server, what it prints, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from billing.books.books import Books
from billing.store.database import open_database
from serve.cli.main import app
from serve.config.paths import ConfigError
from serve.processes.control import actor_of
from tests.integration.running import free_port
from tests.serve.cluster.reloading import Reloading, reloading


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reloading]:
    with reloading(tmp_path_factory.mktemp("reload"), free_port()) as found:
        yield found


def pith(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["reload", *arguments])


def dearer(server: Reloading) -> None:
    def edit(document: dict[str, list[dict[str, dict[str, str]]]]) -> None:
        price = document["models"][0]["price"]
        price["input_usd_per_mtok"] = str(int(price["input_usd_per_mtok"]) + 1)

    server.change(edit)


def test_it_prints_what_changes_and_that_it_is_in_force(server: Reloading) -> None:
    dearer(server)
    dry = pith("--config", str(server.file), "--dry-run")
    assert dry.exit_code == 0 and dry.stdout.endswith("nothing was changed (--dry-run)\n")
    done = pith("--config", str(server.file))
    assert done.exit_code == 0, done.output
    assert "models.alpha.price.input_usd_per_mtok" in dry.stdout and "in force everywhere" in done.stdout


def test_json_is_one_document(server: Reloading) -> None:
    dearer(server)
    done = pith("--config", str(server.file), "--json")
    found = json.loads(done.stdout)
    assert (found["exit"], found["prices_change"], found["refused"]) == (0, True, [])
    assert found["changes"][0]["key"] == "models.alpha.price.input_usd_per_mtok"


def test_the_audit_log_names_the_user_who_asked(server: Reloading) -> None:
    dearer(server)
    assert pith("--config", str(server.file)).exit_code == 0

    async def last() -> str:
        database = open_database(server.settings.billing.database_url)
        try:
            return (await Books(database).audit_log())[-1].actor
        finally:
            await database.close()

    assert asyncio.run(last()) == actor_of(os.getuid())


def test_a_refusal_ends_with_exit_code_2_and_one_line(server: Reloading, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    text = server.file.read_text()
    other.write_text(
        text.replace("max_body_bytes", "max_bdy").replace("idle_timeout_s: 5", "idle_timeout_s: one")
    )
    # The command reads the file too, to find the server.
    done = pith("--config", str(other))
    assert isinstance(done.exception, ConfigError)
    other.write_text(text.replace("port: 0", "port: 9999"))
    done = pith("--config", str(other))
    assert done.exit_code == 2 and done.stderr.count("\n") == 1 and "ops.port" in done.stderr


def test_without_a_server_it_says_where_it_looked(server: Reloading, tmp_path: Path) -> None:
    other = tmp_path / "config.yaml"
    other.write_text(server.file.read_text().replace(str(server.settings.state_dir), str(tmp_path / "none")))
    assert "no server runs with" in str(pith("--config", str(other)).exception)
    assert "on port 1;" in str(pith("--config", str(server.file), "--port", "1").exception)


def test_a_request_that_is_none_is_refused(server: Reloading) -> None:
    from serve.processes.control import ask

    for request in ({"code": "some"}, {"config": 1}, {"dry_run": "yes"}):
        assert list(ask(server.folder, request))[-1]["exit"] == 2
    assert list(ask(server.folder, [])) == []  # type: ignore[arg-type]
