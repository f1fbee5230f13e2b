"""A running service refuses a request for its limit, and its upkeep tells a real receiver."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from billing.store.database import open_database
from billing.usage import now
from billing.webhooks.limit_alerts import Refusals
from billing.webhooks.webhooks import Webhooks
from models.fake_engine import FakeEngine
from serve.app import start_service
from serve.catalog.offered import catalog_of
from serve.config.settings import Settings
from serve.metrics.background import WebhookMetrics
from serve.money.ledger_setup import prepare_ledger, read_pepper
from serve.money.upkeep import open_webhooks
from tests.billing.webhooks.receiver import Receiver, receiving
from tests.serve.served import Served, eventually, serving, settings_document


async def tell(service: Served, refusals: Refusals, metrics: WebhookMetrics) -> None:
    """What upkeep does, once."""
    room = open_webhooks(service.settings, service.database, refusals, metrics)
    for one in room.rounds():
        await one.once()
    await room.close()


async def test_a_limit_that_refuses_requests_is_told_to_a_receiver(tmp_path: Path) -> None:
    allowed = {"allowed_networks": ["127.0.0.0/8"]}
    refusals, registry = Refusals(), CollectorRegistry()
    metrics = WebhookMetrics(registry)
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
