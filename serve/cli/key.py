"""`pith key`: API keys of projects."""

import json
from typing import Annotated

import typer

from billing.clock import now
from serve.cli.account_output import fields_of, show, show_lines, state_of
from serve.cli.ledger_access import on_accounts
from serve.cli.options import All, Config, Json, OfWorkspace
from serve.config.settings import DEFAULT_CONFIG

key_commands = typer.Typer(help="API keys.", no_args_is_help=True)


@key_commands.command("create")
def create_key(
    project: str, name: str = "key", config: Config = DEFAULT_CONFIG, as_json: Json = False
) -> None:
    """Make a key for a project (WORKSPACE/PROJECT or its id). The secret is shown this once."""
    record, secret = on_accounts(
        config, lambda accounts: accounts.create_key(project, name, now=now()), makes_pepper=True
    )
    if as_json:
        typer.echo(json.dumps({**fields_of(record), "key": secret}))
    else:
        typer.echo(f"{secret}\nThis key is shown once. Id: {record.id}")


@key_commands.command("list")
def list_keys(
    workspace: OfWorkspace = None,
    project: Annotated[str | None, typer.Option(help="Only this project (WORKSPACE/PROJECT or id).")] = None,
    all_: All = False,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """List keys with what they belong to, without their secrets."""
    found = on_accounts(config, lambda accounts: accounts.list_keys(workspace, project))
    lines = [
        {
            "workspace": one.workspace.name,
            "project": one.project.name,
            "workspace_id": one.workspace.id,
            **fields_of(one.key),
            **state_of(one.revoked),
        }
        for one in found
    ]
    show_lines(lines, all_, as_json, first=("id", "workspace", "project", "name"))


@key_commands.command("revoke")
def revoke_key(key: str, config: Config = DEFAULT_CONFIG, as_json: Json = False) -> None:
    """Revoke a key, by its id or as a whole. It stops working within 5 seconds everywhere."""
    show(on_accounts(config, lambda accounts: accounts.revoke_key(key, now=now())), as_json)
