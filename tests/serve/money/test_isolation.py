"""Two workspaces beside each other: by no route and by no command is anything of the one seen, changed or spent by the
other, or confirmed to exist. A new route or command without a case here fails."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from click.testing import Result
from fastapi import FastAPI
from sqlalchemy import text
from typer.testing import CliRunner

from billing.collections.collector import Collector
from billing.ledger.ledger import Ledger
from billing.price import Cost
from billing.spool.spool import Spool
from billing.store.database import open_database
from billing.usage import UsageFigures
from models.fake_engine import FakeEngine
from serve.app import catalog_of
from serve.cli.main import app
from serve.config.settings import load_settings
from serve.http.docs_pages import FILES, PAGES
from serve.money.ledger_setup import open_accounts, prices_of
from tests.serve.compressing import CONTEXT, QUERY, Compressing, compressing
from tests.serve.served import HI, Client, migrated_file, serving, settings_document

ITEM = {"query": QUERY, "input": CONTEXT}
CHAT = {"messages": HI, "max_tokens": 6}
# What each route is asked. Those of NO_ACCOUNT take no key and tell of no account.
ROUTES: dict[tuple[str, str], Any] = {
    ("GET", "/v1/models"): None,
    ("POST", "/v1/chat/completions"): CHAT,
    ("POST", "/v1/compress"): ITEM,
    ("POST", "/v1/batch/compress"): {"items": [{"id": "same", **ITEM}]},
    ("GET", "/v1/catalog"): None,
    ("POST", "/v1/demo/compress"): ITEM,
    ("GET", "/health"): None,
    ("HEAD", "/health"): None,
    ("GET", "/ready"): None,
    ("HEAD", "/ready"): None,
    ("GET", "/openapi.json"): None,
    ("HEAD", "/openapi.json"): None,
    **{(method, path): None for path in (*PAGES, *FILES) for method in ("GET", "HEAD")},
}
SPEND = [("POST", "/v1/chat/completions"), ("POST", "/v1/compress"), ("POST", "/v1/batch/compress")]
# Each table whose rows are a workspace's, and how they are found.
OWNED = {
    "workspaces": "id = :w",
    "projects": "workspace_id = :w",
    "api_keys": "project_id IN (SELECT id FROM projects WHERE workspace_id = :w)",
    "workspace_months": "workspace_id = :w",
    "holds": "workspace_id = :w",
    "usage_events": "workspace_id = :w",
    "collections": "workspace_id = :w",
    "audit_log": "workspace_id = :w",
}


@dataclass(frozen=True)
class Tenant:
    """A workspace with its key, and every word by which it could be known."""

    workspace: str
    workspace_id: str
    key: str
    words: tuple[str, ...]


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Compressing]:
    async with compressing(tmp_path) as found:
        yield found


async def tenant(served: Compressing, **kinds: Any) -> Tenant:
    key = await served.new_key(**kinds)
    (project,) = await served.accounts.list_projects(served.workspace)
    (record,) = await served.accounts.list_keys(served.workspace)
    words = (served.workspace, project.workspace.id, project.project.id, record.key.id)
    return Tenant(served.workspace, project.workspace.id, key, words)


async def rows_of(served: Compressing, workspace_id: str) -> dict[str, list[Any]]:
    found = {}
    for table, where in OWNED.items():
        statement = text(f"SELECT * FROM {table} WHERE {where} ORDER BY 1, 2")
        rows = await served.database.read(lambda c, s=statement: c.execute(s, {"w": workspace_id}).all())
        found[table] = [tuple(row) for row in rows]
    return found


async def ask(served: Compressing, route: tuple[str, str], key: str) -> Client:
    method, path = route
    body = ROUTES[route]
    raw = b"" if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json", "X-Request-ID": "same"}
    return await Client(served.api, path, method, headers, (raw,)).run()


async def test_every_route_has_a_case(served: Compressing) -> None:
    inner: Any = served.api
    while not isinstance(inner, FastAPI):
        inner = inner._app
    found = {(method, route.path) for route in inner.routes for method in route.methods}
    assert found == set(ROUTES)


@pytest.mark.parametrize("route", ROUTES, ids=" ".join)
async def test_what_one_asks_shows_and_changes_nothing_of_the_other(
    served: Compressing, route: tuple[str, str]
) -> None:
    other, asking = await tenant(served), await tenant(served)
    for spent in SPEND:
        assert (await ask(served, spent, other.key)).status == 200
    await served.events()
    before = await rows_of(served, other.workspace_id)
    reply = await ask(served, route, asking.key)
    assert reply.status == 200
    await served.events()
    shown = reply.body.decode("utf-8", "replace") + json.dumps(reply.reply_headers)
    assert not [word for word in other.words if word in shown]
    # A caller's own ids are no part of an answer either: who reads a log of answers learns of no account.
    assert not [word for word in asking.words if word in shown]
    assert await rows_of(served, other.workspace_id) == before
    own = await rows_of(served, asking.workspace_id)
    assert len(own["usage_events"]) == int(route in SPEND)


@pytest.mark.parametrize("route", SPEND, ids=" ".join)
async def test_what_one_may_not_spend_the_other_still_may(
    served: Compressing, route: tuple[str, str]
) -> None:
    other, broke = await tenant(served), await tenant(served, spend_limit_nano_usd=0)
    refused = await ask(served, route, broke.key)
    # A batch says it of each item.
    assert refused.status == 402 or "quota_exceeded" in refused.body.decode()
    assert not [word for word in other.words if word in refused.body.decode()]
    assert (await ask(served, route, other.key)).status == 200
    await served.events()
    assert (await rows_of(served, broke.workspace_id))["usage_events"] == []
    assert len((await rows_of(served, other.workspace_id))["usage_events"]) == 1


async def test_the_same_request_id_and_the_same_item_id_are_two_events(served: Compressing) -> None:
    tenants = [await tenant(served) for _ in range(2)]
    for route in SPEND:
        for one in tenants:
            reply = await ask(served, route, one.key)
            assert (reply.status, reply.reply_headers["x-request-id"]) == (200, "same")
    await served.events()
    for one in tenants:
        assert len((await rows_of(served, one.workspace_id))["usage_events"]) == len(SPEND)


@pytest.mark.parametrize("route", [("GET", "/v1/models"), *SPEND], ids=" ".join)
async def test_a_key_that_ended_says_no_more_than_one_that_never_was(
    served: Compressing, route: tuple[str, str]
) -> None:
    other = await tenant(served)
    await served.accounts.revoke_workspace(other.workspace, now=datetime.now(UTC))
    never = f"pith_{'a' * 16}_{'b' * 43}"
    wrong = f"pith_{other.key.split('_')[1]}_{'b' * 43}"
    answers = {
        (reply.status, reply.body)
        for key in (other.key, never, wrong)
        for reply in [await ask(served, route, key)]
    }
    assert len(answers) == 1 and next(iter(answers))[0] == 403


async def test_prefixes_are_kept_apart_by_workspace(tmp_path: Path) -> None:
    """The engine is given a salt of the workspace's, and a caller cannot choose one."""
    async with serving(tmp_path) as service:
        service.engine = engine = FakeEngine()
        salts = []
        for name in ("one", "one-again", "two"):
            key = service.key if name == "one-again" else await service.new_key()
            service = replace(service, key=key)
            assert (await service.chat().run()).status == 200
            salts.append(engine.requests[-1].cache_salt)
        assert salts[0] == salts[1] != salts[2] and all(salts)
        refused = await service.chat(cache_salt=salts[0]).run()
        assert refused.status == 400 and refused.json()["error"]["param"] == "cache_salt"


# --- the commands ------------------------------------------------------------------------------------------------

MINE, THEIRS = "mine", "theirs"
COST = Cost(5 * 10**8, 5 * 10**8, minimum_applied=False)
# A command that names a workspace, and what it is given. `{…}` are ids of the workspace that is named.
NARROWED = {
    "usage": "--workspace mine --by project --by key",
    "receipts": "--workspace mine",
    "statement": "mine {month}",
    "audit": "--workspace mine",
    "workspace set": "mine --limit-usd 7",
    "workspace revoke": "mine",
    "project create": "mine another",
    "project set": "mine/p --max-in-flight 2",
    "project list": "--workspace mine",
    "project revoke": "mine/p",
    "key create": "mine/p",
    "key list": "--workspace mine",
    "key revoke": "{key}",
    "collections list": "--workspace mine",
    "collections mark": "{collection} paid",
    "collections cut": "mine",
}
# Commands of the operator's about everybody at once, or about nobody's account.
OF_ALL = {
    "reconcile": "proves that all books agree",
    "workspace list": "lists all workspaces",
    "workspace create": "makes a new one",
    "collections export": "hands all collections to another program",
    "spool list": "lists what waits of everybody's",
    "spool retry": "moves one event, named by its id, to the workspace that it says",
    "spool drop": "takes out one event, named by its id",
    "compress": "reads no ledger",
    "tune": "reads no ledger",
    "serve": "starts the server",
    "config check": "reads no ledger",
}


def commands(group: typer.Typer, *names: str) -> Iterator[str]:
    for command in group.registered_commands:
        assert command.callback is not None
        yield " ".join((*names, command.name or command.callback.__name__))
    for inner in group.registered_groups:
        assert inner.typer_instance is not None and inner.name
        yield from commands(inner.typer_instance, *names, inner.name)


def test_every_command_has_a_case() -> None:
    assert set(commands(app)) == NARROWED.keys() | OF_ALL.keys()


@dataclass(frozen=True)
class Ledgers:
    """A ledger with two workspaces that both spent, and how to run a command on it."""

    config: Path
    ids: dict[str, dict[str, str]]

    def run(self, command: str, arguments: str) -> Result:
        words = [
            *command.split(),
            *arguments.format(**self.ids[MINE], month=f"{datetime.now(UTC):%Y-%m}").split(),
        ]
        return CliRunner().invoke(app, [*words, "--config", str(self.config)])

    def rows(self, workspace: str) -> dict[str, list[Any]]:
        return asyncio.run(self._rows(self.ids[workspace]["workspace"]))

    async def _rows(self, workspace_id: str) -> dict[str, list[Any]]:
        database = open_database(load_settings(self.config).billing.database_url)
        try:
            served: Any = type("Served", (), {"database": database})
            return await rows_of(served, workspace_id)
        finally:
            await database.close()


@pytest.fixture
def ledgers(tmp_path: Path) -> Ledgers:
    config = tmp_path / "pith.yaml"
    config.write_text(yaml.safe_dump(settings_document(tmp_path)))
    (tmp_path / "pith.db").write_bytes(asyncio.run(migrated_file()))
    return Ledgers(config, asyncio.run(_two_that_spent(config)))


async def _two_that_spent(config: Path) -> dict[str, dict[str, str]]:
    settings, ids, now = load_settings(config), {}, datetime.now(UTC)
    database, accounts = await open_accounts(settings)
    ledger = Ledger(database, Spool(settings.billing.spool_path))
    version = await ledger.publish_prices(prices_of(catalog_of(settings), ()), now=now)
    for name in (MINE, THEIRS):
        workspace = await accounts.create_workspace(name, now=now)
        project = await accounts.create_project(name, "p", now=now)
        record, token = await accounts.create_key(f"{name}/p", "k", now=now)
        caller = await accounts.authenticate(token, now=now)
        hold = await ledger.hold(
            caller,
            model_id="alpha",
            pricing_version=version,
            amount_nano_usd=COST.nano_usd,
            request_id="same",
            now=now,
        )
        figures = UsageFigures(10, 10, 0, False, receipt=json.dumps({"of": name}))
        await ledger.settle(hold, figures=figures, cost=COST, outcome="completed", now=now)
        made = await Collector(database, actor="test").cut_now(name, now=now)
        assert made is not None
        ids[name] = {
            "workspace": workspace.id,
            "project": project.id,
            "key": record.id,
            "collection": made.id,
        }
    await database.close()
    return ids


@pytest.mark.parametrize("command", NARROWED)
def test_a_command_about_one_workspace_shows_and_changes_nothing_of_the_other(
    ledgers: Ledgers, command: str
) -> None:
    before, mine = ledgers.rows(THEIRS), ledgers.rows(MINE)
    done = ledgers.run(command, NARROWED[command])
    assert done.exit_code == 0, done.output
    shown = done.stdout + done.stderr
    assert not [word for word in (THEIRS, *ledgers.ids[THEIRS].values()) if word in shown]
    assert ledgers.rows(THEIRS) == before
    reads = command.split()[-1] in ("usage", "receipts", "statement", "audit", "list")
    # `cut` finds nothing left to cut.
    assert (ledgers.rows(MINE) == mine) is (reads or command == "collections cut")


@pytest.mark.parametrize(
    "command", ["project list", "key list", "usage", "receipts", "audit", "collections list"]
)
def test_a_workspace_that_is_not_there_is_refused_and_not_taken_for_all(
    ledgers: Ledgers, command: str
) -> None:
    done = CliRunner().invoke(
        app, [*command.split(), "--workspace", "nobody", "--config", str(ledgers.config)]
    )
    assert done.exit_code == 1 and done.stdout == ""


def test_a_project_of_the_other_is_not_reached_through_ones_own(ledgers: Ledgers) -> None:
    theirs, before = ledgers.ids[THEIRS]["project"], ledgers.rows(THEIRS)
    for command in ("project set --max-in-flight 1", "project revoke", "key create"):
        verb, *options = command.split(" --")
        words = [
            *verb.split(),
            f"mine/{theirs}",
            *(word for option in options for word in f"--{option}".split()),
        ]
        done = CliRunner().invoke(app, [*words, "--config", str(ledgers.config)])
        assert done.exit_code == 1 and done.stdout == ""
    assert ledgers.rows(THEIRS) == before
