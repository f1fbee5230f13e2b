"""`pith spool`: the usage that waits for the ledger on this machine, and what the ledger refused."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from billing.ledger.replay import replay
from billing.spool.spool import Spool, SpooledEvent
from serve.cli.options import Config, Json
from serve.config.settings import DEFAULT_CONFIG, ConfigError, load_anchored

T = TypeVar("T")

spool_commands = typer.Typer(
    help="Usage that the ledger could not take yet, or refused.", no_args_is_help=True
)

EventId = Annotated[str, typer.Argument(metavar="ID", help="An event's id, as `pith spool list` shows it.")]
# What a line of the list shows of an event; `drop` and `--json` show all of it.
SHOWN = ("request_id", "workspace_id", "model_id", "cost_nano_usd", "settled_at")


def on_spool(config: Path, work: Callable[[Spool], Awaitable[T]]) -> T:
    """Run `work` on the spool that `config` names. Raises `ConfigError` if no server ever ran."""
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

    events = on_spool(config, read)
    if as_json:
        typer.echo(json.dumps([_fields(event) for event in events]))
        return
    for event in events:
        fields = _fields(event)
        details = fields["event"] if isinstance(fields["event"], dict) else {}
        shown = "  ".join(f"{name}={details.get(name, '?')}" for name in SHOWN)
        typer.echo(f"{event.event_id}  {fields['state']}  {shown}")
        if event.refusal is not None:
            typer.echo(f"  {' '.join(event.refusal.split())}")
    if not events:
        typer.echo("none")


@spool_commands.command("retry")
def retry(event_id: EventId, config: Config = DEFAULT_CONFIG) -> None:
    """Offer an event that was set aside to the ledger again, with all that waits, and say what became of it."""
    settings = load_anchored(config)

    async def work(spool: Spool) -> str:
        from billing.store.database import open_database
        from serve.money.ledger_setup import require_ledger_file

        require_ledger_file(settings)
        await spool.retry(event_id)
        database = open_database(settings.billing.database_url)
        try:
            await replay(spool, database)
        finally:
            await database.close()
        again = [event for event in await spool.refused(10**6) if event.event_id == event_id]
        if again:
            return f"set aside again: {again[0].refusal}"
        waits = any(event.event_id == event_id for event in await spool.waiting(10**6))
        return "waits: the ledger is down" if waits else "in the ledger"

    typer.echo(f"{event_id}: {on_spool(config, work)}")


@spool_commands.command("drop")
def drop(event_id: EventId, config: Config = DEFAULT_CONFIG) -> None:
    """Remove an event that was set aside, for good: it is never charged. Prints the event in full, and leaves
    an entry in the audit log."""
    settings = load_anchored(config)

    async def work(spool: Spool) -> SpooledEvent:
        from billing.spool.drop import drop_event
        from serve.money.ledger_setup import open_books, operator

        # First, so that an unknown id is reported whether there is a ledger or not.
        await spool.find_refused(event_id)
        database = await open_books(settings)
        try:
            return await drop_event(spool, database, event_id, actor=operator(), now=datetime.now(UTC))
        finally:
            await database.close()

    typer.echo(json.dumps(_fields(on_spool(config, work))))


def _fields(spooled: SpooledEvent) -> dict[str, Any]:
    try:
        event = json.loads(spooled.event)
    except ValueError:
        # Shown as it is: that it is not JSON may be why the event was set aside.
        event = spooled.event
    return {
        "event_id": spooled.event_id,
        "state": "waiting" if spooled.refusal is None else "set aside",
        "refusal": spooled.refusal,
        "event": event,
    }
