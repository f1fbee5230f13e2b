"""`pith adapter`: adapters of a server that runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from serve.cli.control import folder_of
from serve.cli.options import Config, Json
from serve.cli.output import show_rows
from serve.config.paths import DEFAULT_CONFIG, ConfigError

adapter_commands = typer.Typer(help="Adapters of a server that runs.", no_args_is_help=True)
Port = Annotated[int | None, typer.Option(help="The server's port, where several run with one state_dir.")]
Usd = Annotated[str | None, typer.Option(help="US dollars; default: the base's price.")]


@adapter_commands.command("add")
def add_adapter(
    adapter: Annotated[str, typer.Argument(help="Its id, which callers send as `model`.")],
    of: Annotated[str, typer.Option(help="Id of the model whose engines serve it.")],
    source: Annotated[str, typer.Option(help="Its folder, within `adapters` of the server's state_dir.")],
    name: Annotated[str | None, typer.Option(help="Display name; default: the id.")] = None,
    blurb: Annotated[str | None, typer.Option(help="One or two sentences for the catalog.")] = None,
    input_usd_per_mtok: Usd = None,
    output_usd_per_mtok: Usd = None,
    minimum_request_usd: Usd = None,
    cached_input_usd_per_mtok: Usd = None,
    port: Port = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """Offer an adapter of a model that runs, in every process. With a price, give all of it."""
    price = {
        "input_usd_per_mtok": input_usd_per_mtok,
        "output_usd_per_mtok": output_usd_per_mtok,
        "minimum_request_usd": minimum_request_usd,
        "cached_input_usd_per_mtok": cached_input_usd_per_mtok,
    }
    given = {key: value for key, value in price.items() if value is not None}
    new = {"id": adapter, "of": of, "source": source, "name": name, "blurb": blurb, "price": given or None}
    show_rows(_asked(config, port, "add", new), as_json)


@adapter_commands.command("remove")
def remove_adapter(
    adapter: Annotated[str, typer.Argument(help="Its id.")],
    port: Port = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """Offer an adapter no more. Its requests that run end as they would have."""
    show_rows(_asked(config, port, "remove", adapter), as_json)


@adapter_commands.command("list")
def list_adapters(port: Port = None, config: Config = DEFAULT_CONFIG, as_json: Json = False) -> None:
    """List the adapters on offer."""
    show_rows(_asked(config, port, "list", None), as_json)


def _asked(config: Path, port: int | None, verb: str, of: Any) -> list[dict[str, Any]]:
    """What the server answers; ends the command where it refuses. Raises `ConfigError`."""
    from serve.config.settings import load_anchored
    from serve.processes.control import NoServer, ask

    folder = folder_of(load_anchored(config).state_dir, port)
    try:
        answer = list(ask(folder, {"adapter": {"verb": verb, "of": of}}))
    except NoServer as error:
        raise ConfigError(str(error)) from error
    told: Any = answer[-1] if answer else {"exit": 1, "error": "the server ended before it had answered"}
    if "error" in told:
        typer.echo(f"pith: {told['error']}", err=True)
        raise SystemExit(told["exit"])
    return list(told["rows"])
