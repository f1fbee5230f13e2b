"""Two deployments with different prices on one ledger: each charges its own, whoever published last."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from tests.serve.served import serving


async def test_a_server_charges_its_own_prices_though_another_published_since(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        served = await service.renewed()
        mine = await served.ledger.current_prices()
        dearer = [replace(price, minimum_nano_usd=10**9) for price in mine.prices]
        theirs = await served.ledger.publish_prices(dearer, now=datetime.now(UTC))
        assert theirs != mine.version

        catalog = json.loads((await served.get("/v1/catalog").run()).body)
        assert catalog["pricing_version"] == mine.version
        reply = json.loads((await served.chat().run()).body)
        (event,) = await served.events("chat")
    assert event.cost_nano_usd < 10**9
    assert reply["service"]["billing"]["request_cost_usd"] == event.cost_nano_usd / 10**9


async def test_a_server_whose_list_was_never_published_takes_no_request(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        served = await service.renewed()
        await served.database.write(
            lambda c: [c.exec_driver_sql(f"DROP TRIGGER prices_no_{verb}") for verb in ("update", "delete")]
        )
        await served.database.write(
            lambda c: c.exec_driver_sql("UPDATE prices SET minimum_nano_usd = minimum_nano_usd + 1")
        )
        reply = await served.chat().run()
    assert reply.status == 503
