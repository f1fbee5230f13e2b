"""`pith status`: a running server's models and their load, and what was spent today."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from serve.cli.access import base_url, checked_url, hints
from serve.cli.options import Config, Json
from serve.client import PithError
from serve.config.paths import DEFAULT_CONFIG, ConfigError
from serve.operator.rows import as_table

# Models of these metrics, by what they count.
_IN_FLIGHT = "pith_chat_requests_in_flight"
_WAITING = ("pith_chat_requests_waiting", "pith_compress_jobs_waiting")
_TOKENS = (
    "pith_chat_prompt_tokens_total",
    "pith_chat_completion_tokens_total",
    "pith_retrieval_input_tokens_total",
    "pith_compress_original_tokens_total",
)
_AWAY = "pith_model_away"
_GENERATED = "pith_chat_completion_tokens_total"


@dataclass(frozen=True, slots=True)
class Readings:
    """One scrape: by metric and model; `model` is "" for those without one."""

    values: Mapping[tuple[str, str], float]
    # Reasons of the models that cannot be started.
    away: Mapping[str, str]

    @property
    def models(self) -> list[str]:
        """In the order of the metrics; those with replicas first."""
        return list(dict.fromkeys([*(model for _, model in self.values if model), *self.away]))

    def of(self, name: str, model: str = "") -> float | None:
        return self.values.get((name, model))

    def total(self, names: Iterable[str], model: str) -> float | None:
        found = [value for name in names if (value := self.of(name, model)) is not None]
        return sum(found) if found else None


def readings_of(text: str) -> Readings:
    """From the text of `/metrics`. Values of the same metric and model are added up. Raises `ValueError`."""
    from prometheus_client.parser import text_string_to_metric_families

    values: dict[tuple[str, str], float] = {}
    away: dict[str, str] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith("pith_"):
                key = sample.name, sample.labels.get("model", "")
                values[key] = values.get(key, 0) + sample.value
            if sample.name == _AWAY:
                away[sample.labels["model"]] = sample.labels["reason"]
    order = sorted(values, key=lambda key: not key[0].startswith("pith_replicas"))
    return Readings({key: values[key] for key in order}, away)


def model_load(now: Readings, before: Readings, seconds: float, model: str) -> dict[str, Any]:
    """A model's replicas and load. Tokens per second are of the requests that ended in those seconds; `generated`
    are those of replies, `tokens` all that were read or written."""
    return {
        "model": model,
        "replicas_running": _whole(now.of("pith_replicas_running", model)),
        "replicas_wanted": _whole(now.of("pith_replicas_wanted", model)),
        # Why it cannot be started.
        "away": now.away.get(model),
        # None of one that takes no turns.
        "is_awake": None if (awake := now.of("pith_model_awake", model)) is None else bool(awake),
        "in_flight": _whole(now.of(_IN_FLIGHT, model)),
        "waiting": _whole(now.total(_WAITING, model)),
        "tokens_per_s": _rate(now, before, seconds, _TOKENS, model),
        "generated_per_s": _rate(now, before, seconds, (_GENERATED,), model),
    }


def service_load(now: Readings) -> dict[str, Any]:
    """The figures that are of no one model."""
    return {
        "http_processes": _whole(now.of("pith_ingress_replicas")),
        "http_requests_in_flight": _whole(now.of("pith_http_requests_in_flight")),
        "spool_waiting": _whole(now.of("pith_spool_waiting_events")),
        "spool_refused": _whole(now.of("pith_spool_refused_events")),
    }


def _rate(now: Readings, before: Readings, seconds: float, names: Iterable[str], model: str) -> float | None:
    names = tuple(names)
    after, first = now.total(names, model), before.total(names, model)
    # A server that was started again counts from zero.
    return None if after is None else round(max(0.0, after - (first or 0.0)) / seconds, 1)


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


COLUMNS = ("model", "replicas", "in_flight", "waiting", "tokens_per_s", "generated_per_s")
TODAY = ("requests_today", "spend_today_usd")
CLEAR = "\x1b[H\x1b[J"
# Requests and US dollars, by model.
Spent = Mapping[str, tuple[int, str]]


def status(
    watch: Annotated[bool, typer.Option("--watch", help="Again and again, until Ctrl-C.")] = False,
    every: Annotated[
        float, typer.Option(min=0.2, max=3600, help="Seconds over which tokens per second are counted.")
    ] = 1.0,
    metrics: Annotated[
        str | None, typer.Option(help="The ops port, such as http://127.0.0.1:9464; default: the file's.")
    ] = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """Models with their replicas, queues and tokens per second, requests in flight, and what was spent today (UTC)."""
    url = ops_url(config) if metrics is None else checked_url(metrics)
    try:
        for found in reports(lambda: scrape(url), lambda: spent_today(config), every):
            show(found, url, as_json, clears=watch and sys.stdout.isatty() and not as_json)
            if not watch:
                return
    except KeyboardInterrupt:
        return


def reports(
    scraped: Callable[[], Readings],
    spent: Callable[[], Spent | None],
    every: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[dict[str, Any]]:
    """A report for each `every` seconds. The ledger is read meanwhile: its imports alone take half a second."""
    before, began = scraped(), clock()
    while True:
        today = spent()
        sleep(max(0.0, began + every - clock()))
        now, at = scraped(), clock()
        yield report(now, before, at - began, today)
        before, began = now, at


def ops_url(config: Path) -> str:
    """Raises `ConfigError`."""
    from serve.config.settings import load_settings

    ops = load_settings(config).ops
    if not ops.port:
        raise ConfigError(f"{config}: ops.port is 0: this server has no metrics")
    return base_url(ops.host, ops.port)


def scrape(url: str) -> Readings:
    """Raises `PithError`."""
    from serve.client.pith_client import PithClient

    with hints():
        text = asyncio.run(PithClient(url, None).metrics())
        try:
            return readings_of(text)
        except ValueError as error:
            raise PithError("this address answers, but not as the ops port of pith does") from error


def spent_today(config: Path) -> Spent | None:
    """Requests and US dollars by model since midnight (UTC); None where the ledger cannot be read from here."""
    from billing.errors import BillingError
    from billing.usage import now
    from serve.cli.access import on_books

    midnight = now().replace(hour=0, minute=0, second=0, microsecond=0)
    try:
        rows = on_books(config, lambda operator: operator.usage(["model"], since=midnight))
    except (ConfigError, BillingError):
        return None
    return {row["model"]: (row["requests"], row["cost_usd"]) for row in rows}


def report(now: Readings, before: Readings, seconds: float, spent: Spent | None) -> dict[str, Any]:
    """The server's figures, and those of each model: all that have metrics, or were used today."""
    from decimal import Decimal

    rows = []
    for model in [*now.models, *(name for name in spent or {} if name not in now.models)]:
        requests, usd = (spent or {}).get(model, (0, "0.00"))
        today = dict(zip(TODAY, (None, None) if spent is None else (requests, usd), strict=True))
        rows.append(model_load(now, before, seconds, model) | today)
    total = None if spent is None else str(sum((Decimal(usd) for _, usd in spent.values()), Decimal("0.00")))
    return {**service_load(now), "spend_today_usd": total, "models": rows}


def show(found: Mapping[str, Any], url: str, as_json: bool, *, clears: bool) -> None:
    if as_json:
        import json

        typer.echo(json.dumps(found))
        return
    rows = [{**row, "replicas": _replicas(row)} for row in found["models"]]
    columns = (*COLUMNS, *TODAY)
    text = f"{_head(found, url)}\n\n{as_table(columns, rows, numbers=columns[1:]) if rows else 'none'}"
    typer.echo(CLEAR + text if clears else text)


def _head(found: Mapping[str, Any], url: str) -> str:
    spent = found["spend_today_usd"]
    processes, in_flight = found["http_processes"] or 0, found["http_requests_in_flight"] or 0
    lines = [f"{url}: {processes} HTTP processes, {in_flight} HTTP requests in flight"]
    if found["spool_waiting"] or found["spool_refused"]:
        lines.append(f"spool: {found['spool_waiting']} events wait, {found['spool_refused']} set aside")
    lines += [f"{row['model']} is away: {row['away']}" for row in found["models"] if row["away"]]
    lines.append("spent today (UTC): " + (f"{spent} USD" if spent is not None else "the ledger is not here"))
    return "\n".join(lines)


def _replicas(row: Mapping[str, Any]) -> str | None:
    running, wanted = row["replicas_running"], row["replicas_wanted"]
    asleep = " away" if row["away"] else " asleep" if row["is_awake"] is False else ""
    return None if running is None else f"{running}/{wanted}{asleep}"
