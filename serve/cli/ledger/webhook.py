"""`pith webhook`: webhooks, which tell other programs of limits and collections, and what was delivered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from billing.webhooks.endpoint import DeliveryState
from serve.cli.access import on_books
from serve.cli.options import Config, Json, OfWorkspace
from serve.cli.output import show_rows, show_secret
from serve.config.paths import DEFAULT_CONFIG

if TYPE_CHECKING:
    from serve.operator.operator import Operator

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
    _show_made(_run(config, lambda operator: operator.add_webhook(url, workspace, event or ())), as_json)


@webhook_commands.command("list")
def list_webhooks(
    workspace: OfWorkspace = None, config: Config = DEFAULT_CONFIG, as_json: Json = False
) -> None:
    """List webhooks, oldest first, without their secrets."""
    show_rows(
        [_said(one) for one in _run(config, lambda operator: operator.list_webhooks(workspace))], as_json
    )


@webhook_commands.command("remove")
def remove_webhook(webhook: AWebhook, config: Config = DEFAULT_CONFIG, as_json: Json = False) -> None:
    """Send a webhook nothing more, and forget its secret."""
    show_rows([_said(_run(config, lambda operator: operator.remove_webhook(webhook)))], as_json)


@webhook_commands.command("enable")
def enable_webhook(webhook: AWebhook, config: Config = DEFAULT_CONFIG, as_json: Json = False) -> None:
    """Send to a webhook again that was disabled because it answered 410."""
    show_rows([_said(_run(config, lambda operator: operator.enable_webhook(webhook)))], as_json)


@webhook_commands.command("rotate-secret")
def rotate_secret(webhook: AWebhook, config: Config = DEFAULT_CONFIG, as_json: Json = False) -> None:
    """Give a webhook a new secret, shown this once. For a day the old one signs, too."""
    _show_made(_run(config, lambda operator: operator.rotate_webhook_secret(webhook)), as_json)


@webhook_commands.command("test")
def test_webhook(webhook: AWebhook, config: Config = DEFAULT_CONFIG, as_json: Json = False) -> None:
    """Have a running server send a webhook a `webhook.test`."""
    show_rows([_run(config, lambda operator: operator.test_webhook(webhook))], as_json)


@webhook_commands.command("deliveries")
def list_deliveries(
    webhook: Annotated[str | None, typer.Argument(help="Only of this webhook.")] = None,
    workspace: OfWorkspace = None,
    state: Annotated[DeliveryState | None, typer.Option(help="Only in this state.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many of the latest to print.")] = 100,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """List deliveries, sent or still to be sent, newest first."""
    found = _run(
        config,
        lambda operator: operator.deliveries(webhook, workspace=workspace, state=state, limit=limit),
    )
    show_rows(found, as_json)


@webhook_commands.command("redeliver")
def redeliver(
    event: Annotated[str, typer.Argument(help="Id of the event.")],
    webhook: Annotated[str | None, typer.Option(help="Only to this webhook.")] = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """Have a running server send an event again, with the same id."""
    show_rows(_run(config, lambda operator: operator.redeliver(event, webhook)), as_json)


def _run(config: Path, work: Callable[[Operator], Awaitable[T]]) -> T:
    """Their secrets are encrypted with the pepper."""
    return on_books(config, work, makes_pepper=True)


def _said(webhook: dict[str, Any]) -> dict[str, Any]:
    return {**webhook, "events": " ".join(webhook["events"]) or "all"}


def _show_made(made: dict[str, Any], as_json: bool) -> None:
    about = f"This secret is shown once. Id: {made['id']}"
    show_secret(made["secret"], about, _said(made), as_json)
