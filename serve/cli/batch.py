"""`pith batch`: files of requests, sent to a running pith and fetched from it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from serve.cli.access import KeyFile, Url, url_and_key
from serve.cli.options import Json
from serve.client import PithError
from serve.config.paths import DEFAULT_CONFIG, ConfigError
from serve.operator.rows import as_table

if TYPE_CHECKING:
    from serve.client.pith_client import BatchClient

ENDED = ("completed", "failed", "cancelled", "expired")
LOOK_EVERY_S = 1.0


async def waited(client: BatchClient, batch: dict[str, Any]) -> dict[str, Any]:
    """The batch once it has ended. The bar is on standard error. Raises `PithError`."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task(batch["status"], total=None)
        while batch["status"] not in ENDED:
            await asyncio.sleep(LOOK_EVERY_S)
            batch = await client.find(batch["id"])
            counts = batch["request_counts"]
            progress.update(
                bar,
                description=batch["status"],
                total=counts["total"] or None,
                completed=counts["completed"] + counts["failed"],
            )
    return batch


T = TypeVar("T")
CHAT = "/v1/chat/completions"

batch_commands = typer.Typer(help="Files of requests, run by a server.", no_args_is_help=True)

BatchId = Annotated[str, typer.Argument(help="Id of the batch.")]
Config = Annotated[Path, typer.Option("--config", help="Configuration file of the server.")]


@batch_commands.command("submit")
def submit(
    file: Annotated[Path, typer.Argument(help="Requests, one a line of JSON.")],
    endpoint: Annotated[str, typer.Option("--endpoint", help="The route that they are for.")] = CHAT,
    wait: Annotated[
        bool, typer.Option("--wait", help="Show a progress bar until the batch has ended.")
    ] = False,
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """Upload FILE and run its requests."""

    async def submitted(client: BatchClient) -> dict[str, Any]:
        batch = await client.make(await client.upload(file), endpoint)
        return await waited(client, batch) if wait else batch

    batch = _run((url, key_file, config), submitted)
    _show(batch, as_json)
    raise typer.Exit(_exit_code(batch))


@batch_commands.command("status")
def status(
    batch_id: BatchId,
    wait: Annotated[
        bool, typer.Option("--wait", help="Show a progress bar until the batch has ended.")
    ] = False,
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """Print how far a batch is."""

    async def found(client: BatchClient) -> dict[str, Any]:
        batch = await client.find(batch_id)
        return await waited(client, batch) if wait else batch

    batch = _run((url, key_file, config), found)
    _show(batch, as_json)
    raise typer.Exit(_exit_code(batch))


@batch_commands.command("cancel")
def cancel(
    batch_id: BatchId,
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """Run no more of a batch's requests."""
    _show(_run((url, key_file, config), lambda client: client.cancel(batch_id)), as_json)


@batch_commands.command("output")
def output(
    batch_id: BatchId,
    to: Annotated[Path | None, typer.Option("--to", help="Write to this file.")] = None,
    errors: Annotated[bool, typer.Option("--errors", help="The requests that did not complete.")] = False,
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = DEFAULT_CONFIG,
) -> None:
    """Print what became of a batch's requests, one a line. Exit code 1: the batch failed before any was run."""

    async def copied(client: BatchClient) -> None:
        file_id = _file_of(batch := await client.find(batch_id), errors)
        if file_id is None:
            _tell_why_none(batch, errors)
            return
        if to is None:
            await client.copy(file_id, sys.stdout.buffer)
            return
        try:
            with to.open("wb") as opened:
                await client.copy(file_id, opened)
        except OSError as error:
            raise ConfigError(f"{to}: cannot be written: {error.strerror}") from error

    _run((url, key_file, config), copied)


@batch_commands.command("list")
def list_batches(
    limit: Annotated[int, typer.Option("--limit", min=1, max=100, help="How many at the most.")] = 20,
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """The project's batches, the newest first."""
    found = _run((url, key_file, config), lambda client: client.listed(limit))
    if as_json:
        typer.echo(json.dumps(found))
    else:
        rows = [_row(batch) for batch in found]
        typer.echo(as_table(tuple(_ROW), rows, numbers=("total", "completed", "failed")))


_ROW = ("id", "status", "endpoint", "total", "completed", "failed")


def _row(batch: dict[str, Any]) -> dict[str, Any]:
    return {name: batch.get(name, batch["request_counts"].get(name)) for name in _ROW}


def _file_of(batch: dict[str, Any], errors: bool) -> str | None:
    """The file that was asked for; None where no request is in it. Raises `PithError` of a batch that goes on."""
    if batch["status"] not in ENDED:
        raise PithError(f"batch {batch['id']} is {batch['status']}: its files are written when it has ended")
    found: str | None = batch["error_file_id" if errors else "output_file_id"]
    return found


def _tell_why_none(batch: dict[str, Any], errors: bool) -> None:
    """Say why a batch does not have this file. Raises `PithError` where its input was refused."""
    if batch["status"] == "failed":
        reasons = "; ".join(_reasons(batch)) or "its input was refused"
        raise PithError(f"batch {batch['id']} failed, and has no files: {reasons}")
    told = (
        "failed: there is no file of errors" if errors else "completed: --errors prints what became of them"
    )
    typer.echo(f"batch {batch['id']} is {batch['status']}, and none of its requests {told}", err=True)


def _reasons(batch: dict[str, Any]) -> Iterator[str]:
    for error in (batch["errors"] or {}).get("data", []):
        where = f"line {error['line']}: " if error["line"] else ""
        yield f"{where}{error['message']}"


def _show(batch: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(batch))
        return
    typer.echo(as_table(_ROW, [_row(batch)], numbers=("total", "completed", "failed")))
    for reason in _reasons(batch):
        typer.echo(reason, err=True)


def _exit_code(batch: dict[str, Any]) -> int:
    """1 where the batch was refused, or ended before all of its requests were run."""
    return int(batch["status"] in ("failed", "expired", "cancelled"))


def _run(address: tuple[str | None, Path | None, Path], ask: Callable[[BatchClient], Awaitable[T]]) -> T:
    # Here, because aiohttp takes a quarter of a second to import.
    from serve.client.pith_client import BatchClient

    client = BatchClient(*url_and_key(*address))

    async def asked() -> T:
        return await ask(client)

    return asyncio.run(asked())
