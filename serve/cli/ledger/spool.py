"""`pith spool`: the usage that waits for the ledger on this machine, and what the ledger refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from serve.cli.options import Config, Json
from serve.config.paths import DEFAULT_CONFIG, ConfigError

if TYPE_CHECKING:
    from billing.ledger.spool import Spool, SpooledEvent

T = TypeVar("T")

spool_commands = typer.Typer(
    help="Usage that the ledger could not take yet, or refused.", no_args_is_help=True
)

EventId = Annotated[str, typer.Argument(metavar="ID", help="An event's id, as `pith spool list` shows it.")]
# What a line of the list shows of an event; `drop` and `--json` show all of it.
SHOWN = ("request_id", "workspace_id", "model_id", "cost_nano_usd", "settled_at")


def on_spool(config: Path, work: Callable[[Spool], Awaitable[T]]) -> T:
    """Run `work` on the spool that `config` names. Raises `ConfigError` if no server ever ran."""
    from billing.ledger.spool import Spool
    from serve.config.settings import load_anchored

    settings = load_anchored(config)
    folder = settings.billing.spool_path.parent
    if not folder.is_dir():
        raise ConfigError(f"no spool at {settings.billing.spool_path}; start the server first")

    async def run() -> T:
        spool = Spool(settings.billing.spool_path, max_rows=settings.billing.spool_max_rows)
        try:
            return await work(spool)
        finally:
            await spool.close()

    return asyncio.run(run())


@spool_commands.command("list")
def list_spool(
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of events of each kind to show.")] = 100,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """List events oldest first: those that were set aside, with the ledger's reason, then those that wait."""

    async def read(spool: Spool) -> list[SpooledEvent]:
        return [*await spool.refused(limit), *await spool.waiting(limit)]

    from serve.operator.money import spooled_row

    events = [spooled_row(one) for one in on_spool(config, read)]
    if as_json:
        typer.echo(json.dumps(events))
        return
    for event in events:
        details = event["event"] if isinstance(event["event"], dict) else {}
        shown = "  ".join(f"{name}={details.get(name, '?')}" for name in SHOWN)
        typer.echo(f"{event['event_id']}  {event['state']}  {shown}")
        if event["refusal"] is not None:
            typer.echo(f"  {' '.join(event['refusal'].split())}")
    if not events:
        typer.echo("none")


@spool_commands.command("retry")
def retry(event_id: EventId, config: Config = DEFAULT_CONFIG) -> None:
    """Offer an event that was set aside to the ledger again, with all that waits, and say what became of it."""
    from serve.config.settings import load_anchored

    settings = load_anchored(config)

    async def work(spool: Spool) -> str:
        from billing.ledger.recording import retry as retry_event
        from billing.store.database import open_database
        from serve.money.ledger_setup import require_ledger_file

        require_ledger_file(settings)
        database = open_database(settings.billing.database_url)
        try:
            return await retry_event(spool, database, event_id)
        finally:
            await database.close()

    typer.echo(f"{event_id}: {on_spool(config, work)}")


@spool_commands.command("drop")
def drop(event_id: EventId, config: Config = DEFAULT_CONFIG) -> None:
    """Remove an event that was set aside, for good: it is never charged. Prints the event in full, and leaves
    an entry in the audit log. A chat's event goes with that of its prompt's compression."""
    from serve.config.settings import load_anchored
    from serve.operator.money import spooled_row

    settings = load_anchored(config)

    async def work(spool: Spool) -> list[SpooledEvent]:
        from billing.ledger.spool import drop_event
        from serve.money.ledger_setup import open_books, operator

        # First, so that an unknown id is reported whether there is a ledger or not.
        await spool.find_refused(event_id)
        database = await open_books(settings)
        try:
            return await drop_event(spool, database, event_id, actor=operator(), now=datetime.now(UTC))
        finally:
            await database.close()

    for dropped in on_spool(config, work):
        typer.echo(json.dumps(spooled_row(dropped)))
