"""`pith webhook`: who is told of limits and collections over HTTP, and what became of that."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from billing.webhooks.endpoint import DeliveryState
from serve.cli import output
from serve.cli.ledger_access import on_books
from serve.cli.options import Config, Json, OfWorkspace
from serve.config.paths import DEFAULT_CONFIG
from serve.reports.webhooks import delivery_fields, webhook_fields

if TYPE_CHECKING:
    from billing.webhooks.endpoint import Endpoint
    from billing.webhooks.webhooks import Webhooks

T = TypeVar("T")
webhook_commands = typer.Typer(help="Who is told of limits and collections.", no_args_is_help=True)

AWebhook = Annotated[str, typer.Argument(help="Id of the webhook.")]


@webhook_commands.command("add")
def add_webhook(
    url: Annotated[str, typer.Argument(help="Where to POST, https.")],
    workspace: OfWorkspace = None,
    event: Annotated[list[str] | None, typer.Option(help="Only this type; may be repeated.")] = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """Tell a URL of the events of all workspaces, or of one. The secret is shown this once."""
    added, secret = on_webhooks(
        config, lambda webhooks: webhooks.add(url, workspace=workspace, events=event or ())
    )
    show_secret(added, secret, as_json)


@webhook_commands.command("list")
def list_webhooks(
    workspace: OfWorkspace = None, config: Config = DEFAULT_CONFIG, as_json: Json = False
) -> None:
    """List webhooks, oldest first, without their secrets."""
    found = on_webhooks(config, lambda webhooks: webhooks.listed(workspace))
    show([webhook_fields(one) for one in found], as_json)


@webhook_commands.command("remove")
def remove_webhook(webhook: AWebhook, config: Config = DEFAULT_CONFIG, as_json: Json = False) -> None:
    """Send a webhook nothing more, and forget its secret."""
    show([webhook_fields(on_webhooks(config, lambda webhooks: webhooks.remove(webhook)))], as_json)


@webhook_commands.command("enable")
def enable_webhook(webhook: AWebhook, config: Config = DEFAULT_CONFIG, as_json: Json = False) -> None:
    """Send to a webhook again that was disabled because it answered 410."""
    show([webhook_fields(on_webhooks(config, lambda webhooks: webhooks.enable(webhook)))], as_json)


@webhook_commands.command("rotate-secret")
def rotate_secret(webhook: AWebhook, config: Config = DEFAULT_CONFIG, as_json: Json = False) -> None:
    """Give a webhook a new secret, shown this once. For a day the old one signs, too."""
    changed, secret = on_webhooks(config, lambda webhooks: webhooks.rotate_secret(webhook))
    show_secret(changed, secret, as_json)


@webhook_commands.command("test")
def test_webhook(webhook: AWebhook, config: Config = DEFAULT_CONFIG, as_json: Json = False) -> None:
    """Have a running server send a webhook a `webhook.test`."""
    show([delivery_fields(on_webhooks(config, lambda webhooks: webhooks.test(webhook)))], as_json)


@webhook_commands.command("deliveries")
def list_deliveries(
    webhook: Annotated[str | None, typer.Argument(help="Only of this webhook.")] = None,
    workspace: OfWorkspace = None,
    state: Annotated[DeliveryState | None, typer.Option(help="Only in this state.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many of the latest to print.")] = 100,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """What was sent, or is to be, newest first."""
    found = on_webhooks(
        config,
        lambda webhooks: webhooks.deliveries(webhook, workspace=workspace, state=state, limit=limit),
    )
    show([delivery_fields(one) for one in found], as_json)


@webhook_commands.command("redeliver")
def redeliver(
    event: Annotated[str, typer.Argument(help="Id of the event.")],
    webhook: Annotated[str | None, typer.Option(help="Only to this webhook.")] = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """Have a running server send an event again, with the same id."""
    found = on_webhooks(config, lambda webhooks: webhooks.redeliver(event, endpoint=webhook))
    show([delivery_fields(one) for one in found], as_json)


def on_webhooks(config: Path, work: Callable[[Webhooks], Awaitable[T]]) -> T:
    from billing.webhooks.webhooks import Webhooks
    from serve.money.ledger_setup import operator, pepper_of

    def run(database: Any, settings: Any) -> Awaitable[T]:
        asked = settings.webhooks
        return work(
            Webhooks(
                database,
                pepper=pepper_of(settings),
                actor=operator(),
                most=asked.max_per_workspace,
                allow_http=asked.allow_http,
            )
        )

    return on_books(config, run)


def show(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        typer.echo(output.as_json(rows))
    else:
        typer.echo(output.as_table(list(rows[0]), rows) if rows else "none")


def show_secret(endpoint: Endpoint, secret: str, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({**webhook_fields(endpoint), "secret": secret}))
    else:
        typer.echo(f"{secret}\nThis secret is shown once. Id: {endpoint.id}")
