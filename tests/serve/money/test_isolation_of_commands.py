"""Two workspaces beside each other: by no command about one is anything of the other seen or changed. A new command
without a case here fails."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from typer.testing import CliRunner

from serve.cli.main import VERBS, LightGroup, app
from tests.serve.money.two_workspaces import MINE, THEIRS, Ledgers, commands, two_that_spent

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
    "project forget-originals": "mine/p",
    "key create": "mine/p",
    "key list": "--workspace mine",
    "key set": "{key} --limit-usd 3 --routes chat",
    "key rotate": "{key}",
    "key revoke": "{key}",
    "budget set": "--project mine/p --per month --usd 2",
    "budget list": "--workspace mine",
    "budget remove": "{budget}",
    "collections list": "--workspace mine",
    "collections mark": "{collection} paid",
    "collections cut": "mine",
    "adjustment credit": "mine --usd 1 --reason goodwill",
    "adjustment adjust": "mine --usd -1 --reason correction",
    "adjustment refund": "{event} --reason broken",
    "adjustment list": "--workspace mine",
    "export events": "--workspace mine",
    "webhook list": "--workspace mine",
    "webhook deliveries": "--workspace mine",
    "webhook add": "https://mine.example/hook --workspace mine",
    "webhook remove": "{webhook}",
    "webhook enable": "{webhook}",
    "webhook rotate-secret": "{webhook}",
    "webhook test": "{webhook}",
    "webhook redeliver": "{told}",
}
# Commands of the operator's about everybody at once, or about nobody's account.
OF_ALL = {
    "reconcile": "proves that all books agree",
    "workspace list": "lists all workspaces",
    "workspace create": "makes a new one",
    "collections export": "hands all collections to another program",
    "stop": "stops all of a cluster, and reads no ledger",
    "drain": "takes a node out of a cluster, and reads no ledger",
    "archive": "moves the old events of all to files",
    "backup": "copies all of the ledger",
    "restore": "puts all of a ledger in place where there is none",
    "spool list": "lists what waits of everybody's",
    "spool retry": "moves one event, named by its id, to the workspace that it says",
    "spool drop": "takes out one event, named by its id",
    "compress": "reads no ledger",
    "tune": "reads no ledger",
    "verify": "reads a file",
    "recount": "reads files",
    "init": "writes a configuration",
    "mcp": "asks a running server, with a key",
    **{
        f"batch {verb}": "asks a running server, with a key"
        for verb in ("submit", "status", "cancel", "output", "list")
    },
    "serve": "starts the server",
    "reload": "asks a running server to take its configuration again",
    "status": "adds up what the whole server did today",
    "models": "reads no ledger",
    "chat": "asks a running server, with a key",
    "config check": "reads no ledger",
    **{
        f"adapter {verb}": "asks a running server what it offers to all, or to change that"
        for verb in ("add", "remove", "list")
    },
}


@pytest.fixture
def ledgers(tmp_path: Path) -> Ledgers:
    return asyncio.run(two_that_spent(tmp_path))


def test_every_command_has_a_case() -> None:
    found = {command for verb in VERBS for command in commands(verb.load(LightGroup))}
    assert found == NARROWED.keys() | OF_ALL.keys()


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
    reads = command.split()[-1] in ("usage", "receipts", "statement", "audit", "list", "deliveries", "events")
    # `cut` finds nothing left to cut.
    assert (ledgers.rows(MINE) == mine) is (reads or command == "collections cut")


@pytest.mark.parametrize(
    "command",
    ["project list", "key list", "usage", "receipts", "audit", "collections list", "adjustment list"],
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
    for command in (
        "project set --max-in-flight 1",
        "project revoke",
        "project forget-originals",
        "key create",
    ):
        verb, *options = command.split(" --")
        words = [
            *verb.split(),
            f"mine/{theirs}",
            *(word for option in options for word in f"--{option}".split()),
        ]
        done = CliRunner().invoke(app, [*words, "--config", str(ledgers.config)])
        assert done.exit_code == 1 and done.stdout == ""
    assert ledgers.rows(THEIRS) == before
