"""Upkeep of a running server: it collects as configured, and tells a real receiver of refused limits."""

from __future__ import annotations

import asyncio
import json
import socket
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
from billing.transparency import log_sql
from billing.transparency.notes import signer
from billing.transparency.witness import is_cosigned
from billing.usage import UsageFigures, now
from billing.webhooks.limit_alerts import Refusals
from billing.webhooks.webhooks import Webhooks
from models.fake_engine import FakeEngine
from serve.app import start_service
from serve.catalog.offered import catalog_of
from serve.config.settings import Settings
from serve.metrics.background import TASKS, WebhookMetrics
from serve.money.ledger_setup import log_signer, prepare_ledger, prices_of, read_pepper
from serve.money.upkeep import collecting_round, log_sequencer, open_webhooks, witness_rounds
from tests.billing.transparency.proof_files import Witness as Cosigner
from tests.billing.transparency.witnessing import witnessing
from tests.billing.webhooks.receiver import Receiver, receiving
from tests.migrated import migrated_file
from tests.serve.metrics.readings import counting
from tests.serve.served import Served, eventually, serving, settings_document

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


async def test_the_logs_checkpoints_are_cosigned_where_a_witness_is_configured(tmp_path: Path) -> None:
    plain = settings_with(tmp_path).anchored(tmp_path)
    (tmp_path / "pith.db").write_bytes(await migrated_file())
    database = open_database(plain.billing.database_url)
    assert witness_rounds(plain, database) == []
    try:
        await spend(database, plain, [CENT])
        async with witnessing(log_signer(plain).verifier) as spec:
            asked = {"url": spec.url, "key": str(spec.key.verifier)}
            settings = Settings.model_validate({**settings_document(tmp_path), "log": {"witness": asked}})
            await log_sequencer(settings.anchored(tmp_path), database).once()
            (cosigning,) = witness_rounds(settings, database)
            await cosigning.once()
            # Or the loop would end at each report.
            assert cosigning.name in TASKS
        head = await database.read(log_sql.head)
        assert head.size == 1 and is_cosigned(head.note, spec.key.verifier)
    finally:
        await database.close()


@pytest.mark.parametrize(
    ("field", "value"), [("url", "witness.example"), ("key", "x"), ("key", str(signer(b"p").verifier))]
)
def test_a_witness_that_is_none_is_refused_by_its_key_path(tmp_path: Path, field: str, value: str) -> None:
    asked = {"url": "https://witness.example", "key": str(Cosigner().verifier), field: value}
    with pytest.raises(ValueError, match=rf"log.witness.{field}"):
        Settings.model_validate({**settings_document(tmp_path), "log": {"witness": asked}})


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
        _, token = await accounts.keys.create(f"w{number}/p", "k", now=now)
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


async def tell(service: Served, refusals: Refusals, metrics: WebhookMetrics) -> None:
    """What upkeep does, once."""
    room = open_webhooks(service.settings, service.database, refusals, metrics)
    for one in room.rounds():
        await one.once()
    await room.close()


async def test_a_limit_that_refuses_requests_is_told_to_a_receiver(tmp_path: Path) -> None:
    allowed = {"allowed_networks": ["127.0.0.0/8"]}
    refusals, (counts, registry) = Refusals(), counting()
    metrics = WebhookMetrics(counts)
    with receiving() as receiver:
        async with serving(tmp_path, webhooks=allowed, refusals=refusals) as service:
            service = await spent(service, receiver)
            assert (await service.chat().run()).status == 402
            await tell(service, refusals, metrics)
            await tell(service, refusals, metrics)
        told = [
            (one.payload["data"]["percent"], one.payload["data"]["requests_refused"]) for one in receiver.got
        ]
        assert sorted(told) == [(50, False), (80, False), (100, True)]
        assert not [one for one in receiver.got if service.key.encode() in one.body]
    shown: Any = registry.get_sample_value
    assert shown("pith_webhook_deliveries_total", {"result": "delivered"}) == 3
    assert shown("pith_webhook_deliveries_waiting") == 0


async def test_a_running_service_sends_what_is_due_and_every_task_of_its_upkeep_is_known(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    document = settings_document(tmp_path, webhooks={"allowed_networks": ["127.0.0.0/8"]})
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        document["server"]["port"] = free.getsockname()[1]
    settings = Settings.model_validate(document)
    await prepare_ledger(settings, catalog_of(settings), now=now())
    database = open_database(settings.billing.database_url)
    engines = {model.id: FakeEngine() for model in settings.models}
    with receiving() as receiver:
        service = start_service(settings, engines=engines, compressors={}, retrievers={}, database=database)
        try:
            webhooks = Webhooks(database, pepper=read_pepper(settings.state_dir), actor="test")
            endpoint, _ = await webhooks.add(f"{receiver.url}/hook")
            await webhooks.test(endpoint.id)
            await eventually(lambda: receiver.got, "the webhook is sent")
            service.check()
        finally:
            await service.stop()
    assert not [line for line in caplog.messages if line.startswith("the background task")]


async def spent(service: Served, receiver: Receiver) -> Served:
    """The service with a workspace that used most of its limit."""
    service = await service.renewed()
    webhooks = Webhooks(service.database, pepper=read_pepper(service.settings.state_dir), actor="test")
    await webhooks.add(f"{receiver.url}/hook", workspace=service.workspace)
    assert (await service.chat().run()).status == 200
    posted = (await service.accounts.find_workspace(service.workspace)).posted_nano_usd
    limit = posted * 100 // 90
    await service.accounts.change_workspace(
        service.workspace, {"spend_limit_nano_usd": limit, "monthly_limit_nano_usd": None}
    )
    return service
