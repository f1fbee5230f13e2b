"""Metrics of chat requests, through the whole service with a fake engine, and many values at once in a histogram."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from billing.caller import ProjectLimits
from models.errors import EngineFailed, EngineRejected, EngineUnavailable
from models.fake_engine import FakeEngine
from tests.serve.metrics.readings import Readings, grown, of_registry
from tests.serve.served import (
    MINIMUM_NANO_USD,
    PROMPT_TOKENS,
    Gate,
    Served,
    at_rest,
    eventually,
    serving,
    token_cost,
)

MODEL = '{model="alpha"}'


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path) as found:
        yield await found.renewed()


class Change:
    """What the block changed, once it has ended."""

    def __init__(self, served: Served) -> None:
        self.before = of_registry(served.registry)
        self.after: Readings = {}

    def of(self, prefix: str) -> Readings:
        return grown(self.before, self.after, prefix)


@asynccontextmanager
async def changed(served: Served) -> AsyncIterator[Change]:
    change = Change(served)
    yield change
    await at_rest()
    change.after = of_registry(served.registry)


def ended(outcome: str) -> Readings:
    return {f'pith_chat_requests_total{{model="alpha",outcome="{outcome}"}}': 1}


def metered(status: str) -> Readings:
    return {f'pith_metering_total{{model="alpha",status="{status}"}}': 1}


def tokens(completion: int) -> Readings:
    return {
        f"pith_chat_prompt_tokens_total{MODEL}": PROMPT_TOKENS,
        f"pith_chat_completion_tokens_total{MODEL}": completion,
    }


@pytest.mark.parametrize("stream", [False, True])
async def test_a_completed_request_is_counted_with_its_tokens_and_its_charge(
    served: Served, stream: bool
) -> None:
    async with changed(served) as change:
        assert (await served.chat(stream=stream).run()).status == 200
    streamed = {
        f"pith_chat_time_to_first_token_seconds_count{MODEL}": 1,
        # After the first.
        f"pith_chat_inter_token_seconds_count{MODEL}": 5,
    }
    assert change.of("pith_chat_") == {
        **ended("completed"),
        **tokens(6),
        **(streamed if stream else {}),
        f"pith_chat_request_duration_seconds_count{MODEL}": 1,
    }
    assert change.of("pith_metering") == metered("persisted")
    assert change.of("pith_charged") == {
        f"pith_charged_usd_total{MODEL}": max(token_cost(6), MINIMUM_NANO_USD) / 10**9
    }


async def test_every_series_of_a_model_is_there_before_its_first_request(served: Served) -> None:
    readings = of_registry(served.registry)
    for model in ("alpha", "beta", "gamma", "delta"):
        assert readings[f'pith_chat_requests_total{{model="{model}",outcome="failed"}}'] == 0
        assert readings[f'pith_metering_total{{model="{model}",status="degraded"}}'] == 0


@pytest.mark.parametrize(
    ("failure", "outcome"),
    [
        (EngineRejected("too long", param=None), "refused"),
        (EngineUnavailable("not up", retry_after_s=1), "unavailable"),
        (EngineFailed("died"), "failed"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_that_fails_before_a_token_is_counted_and_nothing_else(
    served: Served, failure: Exception, outcome: str, stream: bool
) -> None:
    served.engine = FakeEngine(fails_with=failure)
    async with changed(served) as change:
        await served.chat(stream=stream).run()
    assert change.of("pith_chat_") == ended(outcome)
    assert change.of("pith_metering") == change.of("pith_charged") == change.of("pith_holds") == {}


async def test_a_stream_that_breaks_off_counts_what_is_charged(served: Served) -> None:
    served.engine = FakeEngine(fails_with=EngineFailed("died"), fails_after=3)
    async with changed(served) as change:
        await served.chat(stream=True).run()
    (event,) = await served.events()
    assert change.of("pith_chat_") == {
        **ended("failed"),
        **tokens(event.completion_tokens),
        f"pith_chat_time_to_first_token_seconds_count{MODEL}": 1,
        f"pith_chat_inter_token_seconds_count{MODEL}": event.completion_tokens - 1,
    }
    assert change.of("pith_charged") == {f"pith_charged_usd_total{MODEL}": event.cost_nano_usd / 10**9}


async def test_a_client_that_leaves_is_cancelled_and_pays_for_what_was_generated(served: Served) -> None:
    gate = Gate(3)
    served.engine = FakeEngine(sleep=gate)
    async with changed(served) as change:
        client = served.chat(stream=True)
        running = client.start()
        await gate.reached.wait()
        in_flight = of_registry(served.registry)
        client.gone.set()
        await running
    assert in_flight[f"pith_chat_requests_in_flight{MODEL}"] == 1
    assert in_flight["pith_http_requests_in_flight"] == 1
    (event,) = await served.events()
    assert event.outcome == "disconnected"
    chat = change.of("pith_chat_")
    assert (
        ended("cancelled").items() <= chat.items() and tokens(event.completion_tokens).items() <= chat.items()
    )
    assert not [name for name in chat if "in_flight" in name or "duration" in name]
    assert change.of("pith_metering") == metered("persisted")


async def test_a_hold_that_is_refused_is_counted_by_its_reason(served: Served) -> None:
    poor = await served.new_key(spend_limit_nano_usd=1)
    stopped = await served.new_key(billing_enabled=False)
    async with changed(served) as change:
        assert (await served.chat(key=poor).run()).status == 402
        assert (await served.chat(key=stopped).run()).status == 402
        assert (await served.chat(key=stopped).run()).status == 402
    assert change.of("pith_holds") == {
        'pith_holds_refused_total{model="alpha",reason="quota_exceeded"}': 1,
        'pith_holds_refused_total{model="alpha",reason="billing_disabled"}': 2,
    }
    assert change.of("pith_chat_") == {'pith_chat_requests_total{model="alpha",outcome="refused"}': 3}


async def test_a_ledger_that_is_away_at_the_hold_is_a_refused_hold(served: Served) -> None:
    await served.warm_up()
    async with changed(served) as change:
        served.database.is_down = True
        assert (await served.chat().run()).status == 503
    assert change.of("pith_holds") == {
        'pith_holds_refused_total{model="alpha",reason="ledger_unavailable"}': 1
    }
    assert change.of("pith_chat_") == ended("unavailable")


async def test_usage_in_the_spool_is_degraded_and_charged(served: Served) -> None:
    gate = Gate(2)
    served.engine = FakeEngine(sleep=gate)
    async with changed(served) as change:
        running = served.chat().start()
        await gate.reached.wait()
        served.database.is_down = True
        gate.opened.set()
        assert (await running).status == 200
        served.database.is_down = False
    assert change.of("pith_metering") == metered("degraded")
    assert change.of("pith_charged") == {
        f"pith_charged_usd_total{MODEL}": max(token_cost(6), MINIMUM_NANO_USD) / 10**9
    }


async def test_usage_that_neither_ledger_nor_spool_took_is_lost(served: Served) -> None:
    gate = Gate(2)
    served.engine = FakeEngine(sleep=gate)
    async with changed(served) as change:
        running = served.chat().start()
        await gate.reached.wait()
        served.database.is_down = True
        # Both go after the request was let in: a spool that cannot be written refuses work at the door.
        await served.spool.close()
        gate.opened.set()
        assert (await running).status == 503
    assert change.of("pith_metering") == metered("lost")
    assert change.of("pith_charged") == {} and change.of("pith_chat_") == ended("unavailable")


async def test_a_project_that_is_not_metered_is_charged_nothing(served: Served) -> None:
    key = await served.new_key(metered=False)
    async with changed(served) as change:
        assert (await served.chat(key=key).run()).status == 200
    assert change.of("pith_metering") == metered("not_applicable")
    assert change.of("pith_charged") == {}
    assert tokens(6).items() <= change.of("pith_chat_").items()


async def test_a_rate_limit_refusal_is_counted_by_limit_and_is_no_chat_request(served: Served) -> None:
    few = await served.new_key(limits=ProjectLimits(requests_per_minute=1))
    small = await served.new_key(limits=ProjectLimits(tokens_per_minute=1))
    gate = Gate(1)
    async with changed(served) as change:
        assert (await served.chat(key=few).run()).status == 200
        assert (await served.chat(key=few).run()).status == 429
        assert (await served.get("/v1/models", key=few).run()).status == 200
        assert (await served.get("/v1/models", key=few).run()).status == 429
        assert (await served.chat(key=small).run()).status == 429
        served.engine = FakeEngine(sleep=gate)
        running = served.chat().start()
        await gate.reached.wait()
        assert (await served.chat().run()).status == 429
        gate.opened.set()
        await running
    assert change.of("pith_rate") == {
        'pith_rate_limit_refusals_total{limit="requests",scope="project"}': 2,
        'pith_rate_limit_refusals_total{limit="tokens",scope="project"}': 1,
        'pith_rate_limit_refusals_total{limit="in_flight",scope="project"}': 1,
    }
    assert change.of("pith_chat_requests_total") == {
        'pith_chat_requests_total{model="alpha",outcome="completed"}': 2
    }


async def test_a_request_that_waits_is_in_flight_until_it_ends(served: Served) -> None:
    gate = Gate(0)
    served.engine = FakeEngine(sleep=gate)
    running = served.chat().start()
    await eventually(gate.reached.is_set)
    assert of_registry(served.registry)[f"pith_chat_requests_in_flight{MODEL}"] == 1
    gate.opened.set()
    await running
    assert of_registry(served.registry)[f"pith_chat_requests_in_flight{MODEL}"] == 0
