"""Requests of the playground for a project's page of people and tags, timed over HTTP in a ledger of years."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections import defaultdict
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from benchmarks.years.generate import OF_PERSONS, TAGS
from benchmarks.years.measure import READ_TIMEOUT_S
from billing.accounts.accounts import Accounts
from billing.ledger.budget_settings import Budgets
from billing.ledger.spool import Spool
from billing.periods import PeriodKind
from billing.store.database import Database, open_database
from billing.usage import now
from models.fake_engine import FakeEngine
from serve.app import build_api, open_ledger
from serve.catalog.offered import catalog_of
from serve.config.settings import load_settings
from serve.money.ledger_setup import pepper_of, prepare_ledger

CONFIG = Path(__file__).parents[2] / "configs/tiny.yaml"
# As `pages/usage/usage.js` and `labels.js` ask.
GROUPS = {"day": None, "model": None, "route": None, "person": 50, "tag": 50}
LABELS = ("person", "tag")
DAYS = (7, 30, 90)
REQUESTS, LOADS = 200, 50
# Wall time and, of what this process does, CPU time; seconds.
Times = dict[str, list[tuple[float, float]]]


async def measure_page(url: str, folder: Path, load: float) -> str:
    """Milliseconds of the page's requests by label, one after another, and of all five at once; as a table."""
    settings = load_settings(CONFIG).anchored(folder)
    billing = settings.billing.model_copy(update={"database_url": url})
    settings = settings.model_copy(update={"billing": billing})
    await prepare_ledger(settings, catalog_of(settings), now=now())
    async with AsyncExitStack() as opened:
        database, spool = open_database(url, timeout_s=READ_TIMEOUT_S), Spool(settings.billing.spool_path)
        ledger = open_ledger(settings, database, spool)
        for close in (database.close, spool.close, ledger.close):
            opened.push_async_callback(close)
        key = await _prepare(database, pepper_of(settings))
        api = build_api(
            settings,
            engines={model.id: FakeEngine() for model in settings.models},
            database=database,
            ledger=ledger,
        )
        asking = httpx.AsyncClient(
            transport=httpx.ASGITransport(api),
            base_url="http://page",
            headers={"Authorization": f"Bearer {key}"},
        )
        client = await opened.enter_async_context(asking)
        times: Times = defaultdict(list)
        for days in DAYS:
            for name, groups, rounds in (
                *((one, (one,), REQUESTS) for one in LABELS),
                ("all five", GROUPS, LOADS),
            ):
                for _ in range(rounds):
                    began = time.perf_counter(), time.process_time()
                    await asyncio.gather(*(_ask(client, days, group) for group in groups))
                    ended = time.perf_counter(), time.process_time()
                    times[f"{name} | {days}"].append((ended[0] - began[0], ended[1] - began[1]))
    lines = [f"load before: {load:.1f} on {os.cpu_count()} cores", ""]
    lines += [
        "| by | days | p50, ms | p95, ms | CPU p50, ms | CPU p95, ms | times |",
        "|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *(_line(name, found) for name, found in times.items())])


async def _prepare(database: Database, pepper: bytes) -> str:
    """A key of the project; budgets of its persons and of each tag, of which every person has counters."""
    project, accounts = f"prj_{OF_PERSONS}", Accounts(database, pepper=pepper)
    budgets = Budgets(database, "benchmark")
    limits: dict[PeriodKind, int] = {"day": 1, "total": 100}
    for period, usd in limits.items():
        made = await budgets.set("person", project, period, usd * 10**9, now=now())
        counting = partial(
            _count, budget_id=made.id, key="total" if period == "total" else f"{now():%Y-%m-%d}"
        )
        await database.write(counting)
    for tag in range(TAGS):
        await budgets.set("tag", project, "month", 10**12, tag=f"tag-{tag}", now=now())
    _, key = await accounts.keys.create(project, f"page {time.time_ns()}", now=now())
    return key


def _count(connection: Any, budget_id: str, key: str) -> None:
    """Nothing is spent in them: then the books add up without events."""
    connection.exec_driver_sql(
        "INSERT INTO budget_counters (id, budget_id, posted_nano_usd, held_nano_usd, began_at) SELECT DISTINCT "
        f"'{budget_id}:{key}:' || label, '{budget_id}', 0, 0, 0 FROM label_months WHERE kind = 'person' "
        f"AND project_id = 'prj_{OF_PERSONS}' ON CONFLICT DO NOTHING"
    )


async def _ask(client: httpx.AsyncClient, days: int, group: str) -> None:
    """As a browser that opens the view."""
    end, limit = datetime.now(UTC).date() + timedelta(days=1), GROUPS[group]
    query = {"start": str(end - timedelta(days=days)), "end": str(end), "scope": "project", "group_by": group}
    reply = await client.get("/v1/usage", params=query | ({} if limit is None else {"limit": str(limit)}))
    rows = reply.raise_for_status().json()["data"]
    if not rows or (group in LABELS and not all(row.get("budgets") for row in rows)):
        raise RuntimeError(f"no usage or no budgets by {group}: {rows[:2]}")


def _line(name: str, found: list[tuple[float, float]]) -> str:
    def of(which: int, share: float) -> float:
        ordered = sorted(1000 * one[which] for one in found)
        return ordered[math.ceil(share * len(ordered)) - 1]

    figures = " | ".join(f"{of(which, share):.0f}" for which in (0, 1) for share in (0.5, 0.95))
    return f"| {name} | {figures} | {len(found)} |"
