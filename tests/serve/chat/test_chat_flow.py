"""What a chat request leaves behind in the ledger, wherever its client leaves and whatever breaks on the way."""

from __future__ import annotations

import asyncio
import logging
import types
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from billing.caller import NO_LIMITS, ProjectLimits
from billing.price import cost
from models.errors import EngineFailed
from tests.serve.served import (
    INPUT_NANO_USD,
    MINIMUM_NANO_USD,
    PROMPT_TOKENS,
    Client,
    Event,
    Gate,
    Served,
    eventually,
    serving,
    token_cost,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

STREAMS = pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    async with serving(tmp_path_factory.mktemp("served")) as service:
        yield service


async def test_the_same_request_id_twice_is_charged_twice(served: Served) -> None:
    for _ in range(2):
        assert (await served.chat(request_id="same").run()).status == 200
    assert len(await served.events("same")) == 2


@STREAMS
async def test_a_client_that_leaves_before_the_engine_took_its_prompt_pays_nothing(
    served: Served, stream: bool
) -> None:
    served.engine.answers = False
    client = served.chat(stream=stream)
    running = client.start()
    await eventually(lambda: served.engine.requests, "the request waits for a place")
    client.gone.set()
    await running
    assert client.sent == []
    assert [aborted.completion_tokens for aborted in served.engine.aborted] == [0]
    assert await served.events() == []
    await served.assert_nothing_is_left_open()


@STREAMS
async def test_a_client_that_leaves_before_the_first_token_pays_for_its_prompt(
    served: Served, stream: bool
) -> None:
    limits = ProjectLimits(tokens_per_minute=10_000)
    key = await served.new_key(served.workspace + "-limited", limits=limits)
    served = replace(served, workspace=served.workspace + "-limited", key=key)
    served.engine.sleep = gate = Gate(0)
    words = 900
    client = served.chat(stream=stream, messages=[{"role": "user", "content": "w " * words}])
    running = client.start()
    await gate.reached.wait()
    client.gone.set()
    await running
    assert client.sent == []
    tokens = words + PROMPT_TOKENS
    assert await served.events() == [Event("disconnected", tokens, 0, INPUT_NANO_USD * tokens, False, stream)]
    served.engine.sleep = asyncio.sleep
    after = await served.chat().run()
    left = int(after.reply_headers["x-ratelimit-remaining-tokens"])
    assert left < 10_000 - words, "what was read for nothing must count against the limit"
    await served.assert_nothing_is_left_open()


async def test_a_client_that_leaves_while_it_sends_its_body_is_no_error(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    client = served.chat()
    client.pieces = (b'{"messages": [', b"never sent")
    client.gone_after = 1
    await client.run()
    assert served.engine.requests == [] and await served.events() == []
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    await served.assert_nothing_is_left_open()


@STREAMS
async def test_usage_goes_to_the_spool_while_the_ledger_is_away_and_back_exactly_once(
    served: Served, stream: bool
) -> None:
    gate = Gate(3)
    served.engine.sleep = gate
    client = served.chat(stream=stream)
    running = client.start()
    await gate.reached.wait()
    served.database.is_down = True
    gate.opened.set()
    await running
    assert client.status == 200 and client.is_complete
    last = client.events()[-2] if stream else client.json()
    assert last["service"]["metering"] == {"persisted": False, "status": "degraded"}
    assert last["service"]["billing"]["request_cost_usd"] == token_cost(6) / 10**9
    # A stream's header has left by then, and told of the hold.
    status = "persisted" if stream else "degraded"
    assert client.reply_headers["x-service-metering-status"] == status
    assert await served.spool.count_waiting() == 1

    served.database.is_down = False
    assert await served.events() == []
    assert (await served.ledger.replay_spool()).posted == 1
    assert (await served.ledger.replay_spool()).posted == 0
    assert await served.events() == [Event("completed", 2, 6, token_cost(6), False, stream)]
    await served.assert_nothing_is_left_open()


@STREAMS
async def test_without_a_ledger_there_is_no_hold_and_the_engine_is_not_asked(
    served: Served, stream: bool
) -> None:
    await served.warm_up()
    served.database.is_down = True
    client = await served.chat(stream=stream).run()
    assert (client.status, client.json()["error"]["code"]) == (503, "ledger_unavailable")
    assert int(client.reply_headers["retry-after"]) >= 1
    assert served.engine.requests == []
    served.database.is_down = False
    assert await served.events() == []
    await served.assert_nothing_is_left_open()
    assert (await served.chat(stream=stream).run()).status == 200


@pytest.mark.parametrize(
    ("workspace", "code"),
    [
        ({"spend_limit_nano_usd": MINIMUM_NANO_USD - 1}, "quota_exceeded"),
        ({"monthly_limit_nano_usd": MINIMUM_NANO_USD - 1}, "quota_exceeded"),
        ({"billing_enabled": False}, "billing_disabled"),
    ],
)
async def test_who_cannot_pay_is_refused_before_the_engine_is_asked(
    served: Served, workspace: dict[str, Any], code: str
) -> None:
    key = await served.new_key(**workspace)
    for _ in range(2):
        client = await served.chat(key=key).run()
        assert (client.status, client.json()["error"]["code"]) == (402, code)
    assert served.engine.requests == []
    await served.assert_nothing_is_left_open()


async def test_a_request_in_flight_takes_the_projects_only_slot_until_it_ends(served: Served) -> None:
    gate = Gate(1)
    served.engine.sleep = gate
    running = served.chat(stream=True).start()
    await gate.reached.wait()
    refused = await served.chat().run()
    assert (refused.status, refused.json()["error"]["code"]) == (429, "rate_limit_exceeded")
    assert int(refused.reply_headers["retry-after"]) >= 1
    gate.opened.set()
    assert (await running).is_complete
    assert (await served.chat().run()).status == 200


async def test_what_a_failed_request_reserved_of_its_tokens_is_given_back(served: Served) -> None:
    key = await served.new_key(limits=ProjectLimits(tokens_per_minute=10_000, requests_per_minute=100))
    first = await served.chat(key=key).run()
    left = int(first.reply_headers["x-ratelimit-remaining-tokens"])
    served.engine.fails_with = EngineFailed("gone")
    assert (await served.chat(key=key).run()).status == 502
    served.engine.fails_with = None
    second = await served.chat(key=key).run()
    # What the first one used, and nothing of what the failed one reserved.
    assert int(second.reply_headers["x-ratelimit-remaining-tokens"]) == left - 8


async def test_a_schema_is_looked_at_when_the_projects_limits_have_let_the_request_in(served: Served) -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "s", "schema": {"$ref": "#"}}}
    key = await served.new_key(limits=ProjectLimits(requests_per_minute=2, max_in_flight=1))
    refused = await served.chat(key=key, response_format=schema).run()
    assert refused.status == 422
    assert refused.json()["detail"][0]["loc"] == ["body", "response_format", "json_schema", "schema"]
    assert (await served.chat(key=key).run()).status == 200
    assert (await served.chat(key=key, response_format=schema).run()).status == 429
    await served.assert_nothing_is_left_open()


async def test_a_body_that_is_refused_counts_as_a_request(served: Served) -> None:
    key = await served.new_key(limits=ProjectLimits(requests_per_minute=4, max_in_flight=1))
    for wrong in ({"temperature": 9}, {"model": "omega"}, {"store": True}, {"max_tokens": "a"}):
        assert (await served.chat(key=key, **wrong).run()).status in (400, 422)
    refused = await served.chat(key=key, temperature=9).run()
    assert refused.status == 429 and int(refused.reply_headers["retry-after"]) >= 1
    assert (await served.chat(key=key).run()).status == 429
    await served.assert_nothing_is_left_open()


async def test_the_list_of_models_uses_up_nothing_that_completions_need(served: Served) -> None:
    key = await served.new_key(limits=ProjectLimits(requests_per_minute=3, max_in_flight=1))
    statuses = [(await served.get("/v1/models", key=key).run()).status for _ in range(4)]
    assert statuses == [200, 200, 200, 429]
    statuses = [(await served.chat(key=key).run()).status for _ in range(4)]
    assert statuses == [200, 200, 200, 429]


async def test_the_list_of_models_waits_for_no_request_in_flight(served: Served) -> None:
    gate = Gate(1)
    served.engine.sleep = gate
    running = served.chat(stream=True).start()
    await gate.reached.wait()
    assert (await served.get("/v1/models").run()).status == 200
    gate.opened.set()
    await running


async def test_the_hold_covers_every_choice_of_the_reply(served: Served) -> None:
    gate = Gate(2)
    served.engine.sleep = gate
    running = served.chat(n=3, max_tokens=50).start()
    await gate.reached.wait()
    held = (await served.accounts.find_workspace(served.workspace)).held_nano_usd
    gate.opened.set()
    await running
    (event,) = await served.events()
    assert event.completion_tokens > 50 and held >= event.cost_nano_usd
    assert held >= 3 * 50 * 400_000


class Interruptions:
    """Runs one request and interrupts it at its nth suspension, which is where a real cancellation lands."""

    def __init__(self, served: Served, stream: bool, request_id: str) -> None:
        self.client: Client = served.chat(stream=stream, request_id=request_id, max_tokens=3)
        self.suspensions = 0

    async def run(self, interrupt: Callable[[Interruptions, Any], None]) -> None:
        """Until the request has ended, in whatever way; `interrupt` is called at each suspension."""
        task = asyncio.create_task(self._stepped(self.client.run(), interrupt))
        await asyncio.wait([task])
        assert task.cancelled() or task.exception() is None, task.exception()

    async def _stepped(
        self, work: Coroutine[Any, Any, Any], interrupt: Callable[[Interruptions, Any], None]
    ) -> None:
        @types.coroutine
        def steps() -> Generator[Any, Any, None]:
            error: BaseException | None = None
            while True:
                try:
                    awaited = work.throw(error) if error is not None else work.send(None)
                except StopIteration:
                    return
                self.suspensions += 1
                interrupt(self, awaited)
                try:
                    yield awaited
                    error = None
                except BaseException as raised:
                    error = raised

        await steps()


def cancel() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


def once(n: int) -> Callable[[Interruptions, Any], None]:
    """Cancel while the request waits for what its nth suspension awaits."""

    def interrupt(request: Interruptions, awaited: Any) -> None:
        if request.suspensions == n:
            cancel()

    return interrupt


def late(n: int) -> Callable[[Interruptions, Any], None]:
    """Cancel when what is awaited has just come, and before the request is told: its result is lost."""

    def interrupt(request: Interruptions, awaited: Any) -> None:
        if request.suspensions != n:
            return
        if awaited is None:
            cancel()
            return
        task = asyncio.current_task()
        assert task is not None
        awaited.add_done_callback(lambda done: task.cancel())

    return interrupt


def from_then_on(n: int) -> Callable[[Interruptions, Any], None]:
    """Cancel there and at every suspension after, as a server does that will wait no longer."""

    def interrupt(request: Interruptions, awaited: Any) -> None:
        if request.suspensions >= n:
            cancel()

    return interrupt


def client_leaves(n: int) -> Callable[[Interruptions, Any], None]:
    def interrupt(request: Interruptions, awaited: Any) -> None:
        if request.suspensions == n:
            request.client.gone.set()

    return interrupt


@STREAMS
@pytest.mark.parametrize("how", [once, late, from_then_on, client_leaves])
async def test_an_interruption_at_any_await_leaves_no_hold_and_never_two_events(
    served: Served, stream: bool, how: Callable[[int], Callable[[Interruptions, Any], None]]
) -> None:
    outcomes = set()
    for n in range(1, 200):
        served.engine.requests.clear()
        served.engine.aborted.clear()
        request = Interruptions(served, stream, f"interrupted-{n}")
        await request.run(how(n))
        events = await served.events(f"interrupted-{n}")
        aborted = [each.completion_tokens for each in served.engine.aborted]
        generated = aborted[0] if aborted else 3 if served.engine.requests else 0
        assert [event.completion_tokens for event in events] in ([], [generated]), n
        if request.client.body or (how is client_leaves and generated):
            assert len(events) == bool(generated), n
        if not generated and events:
            # Who left while the engine read the prompt owes for that.
            assert how is client_leaves and served.engine.aborted, n
        # A server that stops is at fault, and asks for no minimum.
        least = {
            event.cost_nano_usd: 0 if event.outcome == "failed" else MINIMUM_NANO_USD for event in events
        }
        assert all(cost == max(minimum, token_cost(generated)) for cost, minimum in least.items()), n
        await served.assert_nothing_is_left_open()
        outcomes |= {event.outcome for event in events} or {"nothing"}
        if request.suspensions < n:
            break
    else:
        pytest.fail("the request never ran to its end")
    # Before the engine began, in its midst, and at the end or not at all. Nobody pays for a JSON reply that a stopping
    # server did not send.
    midst = {"disconnected"} if how is client_leaves else {"failed"} if stream else set()
    assert outcomes == {"nothing", "completed"} | midst
    assert request.client.status == 200 and request.client.is_complete


async def test_many_at_once_of_whom_some_leave_and_some_break_are_each_settled_once(served: Served) -> None:
    key = await served.new_key(limits=NO_LIMITS)
    clients = [served.chat(key=key, request_id=f"many-{n}", stream=n % 2 == 0) for n in range(40)]
    running = [client.start() for client in clients]
    for n, client in enumerate(clients):
        if n % 5 == 0:
            client.gone.set()
            await asyncio.sleep(0)
    await asyncio.gather(*running)
    await eventually(lambda: not served.ledger._writes, "the ledger's writes")
    await served.assert_nothing_is_left_open()
    assert all(client.status == 200 for n, client in enumerate(clients) if n % 5)


async def test_the_cost_is_the_pure_functions(served: Served) -> None:
    prices = await served.ledger.current_prices()
    price = prices.of("alpha")
    assert price is not None
    for tokens in (1, 2, 3, 19):
        assert (await served.chat(max_tokens=tokens, request_id=f"t{tokens}").run()).status == 200
        (event,) = await served.events(f"t{tokens}")
        expected = cost(price, prompt_tokens=2, completion_tokens=tokens, minimum=True)
        assert (event.cost_nano_usd, event.minimum_applied) == (expected.nano_usd, expected.minimum_applied)
