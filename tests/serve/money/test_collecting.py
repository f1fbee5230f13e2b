"""The server collects as its configuration says: threshold, hook, time-out, and where the hook's program is."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from billing.accounts.accounts import Accounts
from billing.background.upkeep import Loop
from billing.collections.collector import Collector
from billing.ledger.ledger import Ledger
from billing.ledger.spool import Spool
from billing.price import Cost
from billing.store.database import open_database
from billing.usage import UsageFigures
from serve.catalog.offered import catalog_of
from serve.config.settings import Settings
from serve.money.ledger_setup import prices_of
from serve.money.upkeep import collecting_round
from tests.migrated import migrated_file
from tests.serve.served import settings_document

CENT = 10_000_000


def settings_with(folder: Path, **billing: Any) -> Settings:
    document = settings_document(folder)
    document["billing"] |= billing
    return Settings.model_validate(document)


async def test_the_server_cuts_at_its_threshold_and_runs_its_hook(tmp_path: Path) -> None:
    hook = tmp_path / "hook"
    hook.write_text(f'#!/bin/sh\ncat > {tmp_path}/given\necho \'{{"state": "paid", "reference": "pi_1"}}\'\n')
    hook.chmod(0o755)
    settings = settings_with(
        tmp_path, collection_threshold_cents=7, collection_hook=["./hook"], upkeep_s=0.02
    ).anchored(tmp_path)
    (tmp_path / "pith.db").write_bytes(await migrated_file())
    database = open_database(settings.billing.database_url)
    await spend(database, settings, [7 * CENT - 1, 7 * CENT])
    running = asyncio.create_task(Loop(collecting_round(settings, database)).run())
    try:
        async with asyncio.timeout(60):
            while not (made := await Collector(database, actor="test").listed(state="paid")):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await database.close()
    assert [(one.cents, one.reference) for one in made] == [(7, "pi_1")]
    given = json.loads((tmp_path / "given").read_text())
    assert given["idempotency_key"] == made[0].idempotency_key


async def spend(database: Any, settings: Settings, amounts: list[int]) -> None:
    """Each amount by a workspace of its own."""
    now = datetime(2026, 11, 20, tzinfo=UTC)
    accounts, ledger = (
        Accounts(database, pepper=b"p" * 32),
        Ledger(database, Spool(settings.billing.spool_path)),
    )
    version = await ledger.publish_prices(prices_of(catalog_of(settings), []), now=now)
    for number, amount in enumerate(amounts):
        await accounts.create_workspace(f"w{number}", now=now)
        await accounts.create_project(f"w{number}", "p", now=now)
        _, token = await accounts.create_key(f"w{number}/p", "k", now=now)
        caller = await accounts.authenticate(token, now=now)
        hold = await ledger.hold(
            caller, model_id="alpha", pricing_version=version, amount_nano_usd=amount, request_id="r", now=now
        )
        figures = UsageFigures(prompt_tokens=1, completion_tokens=1, cached_tokens=0, stream=False)
        await ledger.settle(
            hold, figures=figures, cost=Cost(amount, amount, False), outcome="completed", now=now
        )


@pytest.mark.parametrize(
    ("given", "anchored"),
    [
        (["pay", "./x"], ["pay", "./x"]),
        (["bin/pay", "./x"], ["/somewhere/bin/pay", "./x"]),
        (["/usr/bin/pay"], ["/usr/bin/pay"]),
        ([], []),
    ],
)
def test_a_hook_by_path_is_found_from_where_the_server_was_started(
    tmp_path: Path, given: list[str], anchored: list[str]
) -> None:
    settings = settings_with(tmp_path, collection_hook=given)
    assert settings.anchored(Path("/somewhere")).billing.collection_hook == anchored


@pytest.mark.parametrize(
    ("billing", "words"),
    [
        ({"collection_hook": "pay now"}, "valid list"),
        ({"collection_hook": ["", "x"]}, "the first item must name a program"),
        ({"collection_hook": ["pay", "a\0b"]}, "must not contain NUL"),
        ({"collection_hook": ["pay", 5]}, "valid string"),
        ({"collection_hook_timeout_s": 0}, "greater than 0"),
        ({"collection_hook_timeout_s": 601}, "less than or equal to 600"),
    ],
)
def test_a_hook_that_cannot_be_run_is_refused(tmp_path: Path, billing: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        settings_with(tmp_path, **billing)
