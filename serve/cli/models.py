"""`pith models`: what a configuration serves, or what a running server does, with contexts and prices."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from serve.cli.access import checked_url, hints
from serve.cli.options import Config, Json
from serve.cli.output import show_rows
from serve.config.paths import DEFAULT_CONFIG, ConfigError
from serve.operator.rows import as_csv as csv_of

if TYPE_CHECKING:
    from serve.config.settings import Settings

PRICES = ("input_usd_per_mtok", "cached_input_usd_per_mtok", "output_usd_per_mtok", "minimum_request_usd")
COLUMNS = ("id", "kind", "context_length", *PRICES, "name")
# What a server calls the prices.
SERVED = {
    "input_usd_per_mtok": "input_price_per_mtok",
    "cached_input_usd_per_mtok": "cached_input_price_per_mtok",
    "output_usd_per_mtok": "output_price_per_mtok",
    "minimum_request_usd": "minimum_request_charge_usd",
}
Row = dict[str, Any]


def models(
    url: Annotated[
        str | None, typer.Option(help="Ask the server there instead of reading the file; needs no key.")
    ] = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
) -> None:
    """List models with their kinds, contexts and prices: those of the configuration, or of a running server."""
    if as_json and as_csv:
        raise ConfigError("--csv and --json cannot be used together")
    rows = configured(config) if url is None else asyncio.run(served(checked_url(url)))
    if as_csv:
        typer.echo(csv_of(COLUMNS, rows), nl=False)
    else:
        show_rows(rows, as_json, COLUMNS, numbers=("context_length", *PRICES))


def configured(config: Any) -> list[Row]:
    """Raises `ConfigError`."""
    from serve.config.settings import load_settings

    return rows_of(load_settings(config))


def rows_of(settings: Settings) -> list[Row]:
    """The chat models, the first of which is the default, then the others."""
    chat = [
        _row(model.id, "chat", model.context_length, model.name, model.price.model_dump())
        for model in settings.models
    ]
    others = [
        _row(model.id, model.kind, model.context_length, model.name, model.price.model_dump())
        for model in settings.retrieval_models
    ]
    compressors = [
        _row(
            model.id,
            "compression",
            None,
            model.name,
            {"input_usd_per_mtok": model.price_usd_per_mtok_input},
        )
        for model in settings.compression.models
    ]
    return chat + others + compressors


async def served(url: str) -> list[Row]:
    """Raises `PithError`."""
    from serve.client.pith_client import PithClient

    with hints():
        listed = await PithClient(url, None).models()
    return [
        _row(
            model["id"],
            model.get("kind", "chat"),
            model.get("max_model_len"),
            model.get("name"),
            {name: model.get(field) for name, field in SERVED.items()},
        )
        for model in listed
    ]


def _row(id: str, kind: str, context_length: int | None, name: str | None, prices: Row) -> Row:
    shown = {price: prices.get(price) for price in PRICES}
    return {
        "id": id,
        "kind": kind,
        "context_length": context_length,
        **{price: None if value is None else _plain(value) for price, value in shown.items()},
        "name": name,
    }


def _plain(usd: Any) -> str:
    """Exact decimal text, at least cents: `0.10`, never `1e-05`."""
    from decimal import Decimal

    exact = Decimal(str(usd)).normalize()
    exponent = exact.as_tuple().exponent
    places = max(2, -exponent) if isinstance(exponent, int) else 2
    return f"{exact:.{places}f}"
