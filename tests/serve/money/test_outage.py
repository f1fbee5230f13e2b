"""What callers meet while the ledger, the spool's disk or Redis is away: bounded service or a clear 503, no loss."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from billing.caller import ProjectLimits
from tests.serve.served import (
    INPUT_NANO_USD,
    OUTPUT_NANO_USD,
    PROMPT_TOKENS,
    Event,
    Served,
    serving,
    settings_document,
    token_cost,
)

ALLOWANCE_USD = "0.1"
STREAMS = pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    billing = {
        **settings_document(tmp_path)["billing"],
        "offline_allowance_usd": ALLOWANCE_USD,
        "spool_max_rows": 3,
    }
    async with serving(tmp_path, billing=billing) as service:
        yield await service.renewed()


@STREAMS
async def test_a_known_caller_is_served_within_the_allowance_and_charged_when_the_ledger_is_back(
    served: Served, stream: bool
) -> None:
    await served.warm_up()
    served.database.is_down = True
    client = await served.chat(stream=stream).run()
    assert client.status == 200
    assert client.reply_headers["x-service-metering-status"] == "degraded"
    last = client.events()[-2] if stream else client.json()
    assert last["service"]["metering"] == {"persisted": False, "status": "degraded"}
    served.database.is_down = False
    assert (await served.ledger.replay_spool()).posted == 1
    assert await served.events() == [Event("completed", 2, 6, token_cost(6), False, stream)]
    await served.assert_nothing_is_left_open()


async def test_above_the_allowance_there_is_a_503_before_any_work(served: Served) -> None:
    await served.warm_up()
    served.database.is_down = True
    client = await served.chat(max_tokens=1000).run()
    assert (client.status, client.json()["error"]["code"]) == (503, "ledger_unavailable")
    assert "$0.1" in client.json()["detail"] and int(client.reply_headers["retry-after"]) >= 1
    assert served.engine.requests == []


async def test_a_caller_whose_key_nobody_has_read_gets_a_503(served: Served) -> None:
    await served.warm_up()
    stranger = await served.new_key()
    served.database.is_down = True
    client = await served.chat(key=stranger).run()
    assert (client.status, client.json()["error"]["code"]) == (503, "ledger_unavailable")
    assert int(client.reply_headers["retry-after"]) >= 1


async def test_a_full_spool_is_a_503_before_any_work(served: Served) -> None:
    await served.warm_up()
    served.database.is_down = True
    for _ in range(3):
        assert (await served.chat().run()).status == 200
    worked = len(served.engine.requests)
    client = await served.chat().run()
    assert (client.status, client.json()["error"]["code"]) == (503, "spool_full")
    assert int(client.reply_headers["retry-after"]) >= 1 and len(served.engine.requests) == worked


async def test_a_disk_that_refuses_the_spool_is_a_503_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    billing = {**settings_document(tmp_path)["billing"], "spool_path": str(tmp_path / "file" / "spool.db")}
    async with serving(tmp_path, billing=billing) as service:
        served = await service.renewed()
        client = await served.chat().run()
        assert (client.status, client.json()["error"]["code"]) == (503, "ledger_unavailable")
        assert "spool" in client.json()["detail"] and str(tmp_path) not in client.json()["detail"]
        assert served.engine.requests == []
        await served.assert_nothing_is_left_open()


@pytest.mark.parametrize(("outage", "status"), [("refuse", 503), ("allow", 200)])
async def test_without_redis_the_configuration_decides(tmp_path: Path, outage: str, status: int) -> None:
    nowhere = f"unix://{tmp_path / 'nobody-listens'}"
    billing = {
        **settings_document(tmp_path)["billing"],
        "rate_limit_storage": nowhere,
        "rate_limit_outage": outage,
    }
    async with serving(tmp_path, billing=billing) as service:
        served = await service.renewed()
        key = await served.new_key(limits=ProjectLimits(requests_per_minute=2))
        client = await served.chat(key=key).run()
        assert client.status == status
        if status == 503:
            assert client.json()["error"]["code"] == "limits_unavailable"
            assert int(client.reply_headers["retry-after"]) >= 1
            assert "nobody-listens" not in client.body.decode()
            assert served.engine.requests == []
        else:
            assert client.reply_headers["x-ratelimit-remaining-requests"] == "1"


@STREAMS
async def test_near_the_limit_the_prompt_is_counted_and_far_from_it_is_not(
    served: Served, stream: bool
) -> None:
    exact = PROMPT_TOKENS * INPUT_NANO_USD + 6 * OUTPUT_NANO_USD
    near = await served.new_key("near", spend_limit_nano_usd=exact)
    assert (await served.chat(key=near, stream=stream).run()).status == 200
    assert len(served.engine.counted) == 1
    # Nothing is left of it, so that no count can help.
    client = await served.chat(key=near, stream=stream).run()
    assert (client.status, len(served.engine.counted)) == (402, 1)
    short = await served.new_key("short", spend_limit_nano_usd=exact - 1)
    client = await served.chat(key=short, stream=stream).run()
    assert (client.status, client.json()["error"]["code"]) == (402, "quota_exceeded")
    assert len(served.engine.counted) == 2
    far = await served.new_key("far", spend_limit_nano_usd=100 * exact)
    assert (await served.chat(key=far, stream=stream).run()).status == 200
    assert len(served.engine.counted) == 2
    await served.assert_nothing_is_left_open()
