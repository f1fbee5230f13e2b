"""Adapters come and go while a server runs: in its catalog, its prices and its audit log, and after a restart."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry
from typer.testing import CliRunner

from benchmarks.training.chat_models.adapter import make_adapter
from billing.books.books import Books
from billing.ledger.price_list import latest
from billing.store.database import open_database
from serve.cli.main import app
from serve.config.added_adapters import FILE, with_added
from serve.config.paths import ConfigError
from serve.config.settings import load_settings
from serve.ops.app import open_ops
from tests.integration.running import free_port
from tests.serve.cluster.reloading import Reloading, reloading
from tests.serve.served import HI

PRICE = {"input_usd_per_mtok": "7", "output_usd_per_mtok": "9", "minimum_request_usd": "0.5"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reloading]:
    """Its `alpha` has room for adapters, its `beta` none."""
    with reloading(tmp_path_factory.mktemp("adapters"), free_port()) as found:

        def edit(document: dict[str, Any]) -> None:
            document["models"][0]["engine"] = {"max_loras": 2}
            document["models"][1]["engine"] = {}

        found.change(edit)
        assert found.reload()["exit"] == 0
        yield found


@pytest.fixture(scope="module")
def admin(server: Reloading) -> Iterator[httpx.Client]:
    port = free_port()
    settings = server.settings.model_copy(
        update={"ops": server.settings.ops.model_copy(update={"port": port})}
    )
    close = open_ops(settings, CollectorRegistry(), adapters=lambda: server.reloader.adapters)
    key = (settings.state_dir / "admin-key").read_text().strip()
    with httpx.Client(
        base_url=f"http://127.0.0.1:{port}/admin/v1", headers={"Authorization": f"Bearer {key}"}, timeout=120
    ) as client:
        yield client
    close()


@pytest.fixture(scope="module")
def folder(server: Reloading) -> Path:
    return make_adapter(server.settings.state_dir / "adapters/loud")


def pith(server: Reloading, *arguments: str) -> Any:
    return CliRunner().invoke(app, ["adapter", *arguments, "--config", str(server.file)])


def offered(server: Reloading) -> set[str]:
    with server.client() as http:
        ours = {model["id"] for model in http.get("/v1/models").json()}
        assert ours == {model["id"] for model in http.get("/openai/v1/models").json()["data"]}
    return ours


def asked(server: Reloading, model: str) -> httpx.Response:
    with server.client() as http:
        return http.post("/v1/chat/completions", json={"model": model, "messages": HI, "max_tokens": 2})


def priced(server: Reloading) -> dict[str, int]:
    async def read() -> dict[str, int]:
        database = open_database(server.settings.billing.database_url)
        found = await database.read(latest)
        await database.close()
        assert found is not None
        return {price.model_id: price.input_micro_usd_per_mtok for price in found.prices}

    return asyncio.run(read())


def last_noted(server: Reloading) -> tuple[str, str]:
    async def read() -> tuple[str, str]:
        database = open_database(server.settings.billing.database_url)
        entry = (await Books(database).audit_log())[-1]
        await database.close()
        return entry.action, entry.actor.partition(":")[0]

    return asyncio.run(read())


def test_an_adapter_is_offered_priced_and_noted_at_once_and_after_a_restart(
    server: Reloading, admin: httpx.Client, folder: Path
) -> None:
    added = admin.post("/adapters", json={"id": "a/loud", "of": "alpha", "source": "loud", "price": PRICE})
    assert added.status_code == 201, added.text
    assert "a/loud" in offered(server) and priced(server)["a/loud"] == 7_000_000
    assert last_noted(server) == ("adapter.add", "admin")
    reply = asked(server, "a/loud")
    assert reply.status_code == 200 and reply.json()["service"]["billing"]["request_cost_usd"] >= 0.5
    assert [row["added"] for row in admin.get("/adapters").json()["data"]] == [True]
    # A reload of the file, and a restart, go on with it.
    assert "a/loud" in {model.id for model in with_added(load_settings(server.file)).models}
    removed = admin.delete("/adapters/a/loud")
    assert removed.status_code == 200 and removed.json() == added.json()
    assert "a/loud" not in offered(server) and "a/loud" not in priced(server)
    assert last_noted(server) == ("adapter.remove", "admin")
    gone, unknown = asked(server, "a/loud").json()["error"], asked(server, "nobody").json()["error"]
    assert (gone["type"], gone["code"]) == (unknown["type"], unknown["code"])
    assert json.loads((server.settings.state_dir / FILE).read_text()) == []


def test_the_command_does_the_same_at_the_price_of_the_base(server: Reloading, folder: Path) -> None:
    done = pith(server, "add", "quiet", "--of", "alpha", "--source", "loud", "--json")
    assert done.exit_code == 0, done.output
    assert priced(server)["quiet"] == priced(server)["alpha"] and last_noted(server) == ("adapter.add", "cli")
    assert "quiet" in pith(server, "list").stdout
    assert pith(server, "remove", "quiet").exit_code == 0 and "quiet" not in offered(server)
    refused = pith(server, "remove", "quiet")
    assert refused.exit_code == 2 and "no adapter has the id 'quiet'" in refused.stderr


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"of": "nobody"}, 422, "of: 'nobody' is no chat model"),
        ({"of": "beta"}, 422, "set engine.max_loras of beta"),
        ({"id": "alpha"}, 422, "'alpha' is listed twice"),
        ({"id": "a b"}, 422, "id: "),
        ({"source": "../../etc"}, 422, "must be a folder within"),
        ({"source": "missing"}, 422, "adapter_config.json: cannot be read"),
        ({"price": {**PRICE, "input_usd_per_mtok": "-1"}}, 422, "input_usd_per_mtok"),
    ],
)
def test_what_cannot_be_served_is_refused_with_the_reason_and_nothing_is_kept(
    server: Reloading, admin: httpx.Client, folder: Path, fields: dict[str, Any], status: int, words: str
) -> None:
    before = offered(server)
    refused = admin.post("/adapters", json={"id": "new", "of": "alpha", "source": "loud", **fields})
    assert refused.status_code == status and words in refused.text
    assert offered(server) == before and admin.get("/adapters").json()["data"] == []


def test_what_the_server_cannot_take_now_is_kept_nowhere(server: Reloading, folder: Path) -> None:
    with server.reloader._alone():
        refused = pith(server, "add", "busy", "--of", "alpha", "--source", "loud")
    assert refused.exit_code == 1 and "another reload is under way" in refused.stderr
    assert "busy" not in (server.settings.state_dir / FILE).read_text()


def test_an_added_adapter_whose_base_is_gone_is_said_with_the_file(server: Reloading, tmp_path: Path) -> None:
    settings = server.settings.model_copy(update={"state_dir": tmp_path})
    entry = {"id": "x", "name": "X", "blurb": "X", "adapter": {"of": "gone", "source": "/x"}, "price": PRICE}
    (tmp_path / FILE).write_text(json.dumps([entry]))
    with pytest.raises(ConfigError, match=f"{tmp_path}/{FILE}: x: adapter.of: 'gone' is no chat model"):
        with_added(settings)
