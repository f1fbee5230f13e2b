"""Soft landings at a budget's end: where a chat goes on, what it is charged there, and when it is refused after all."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import text

from billing.accounts.keys import KeyTerms
from billing.caller import KeyPowers
from billing.errors import LedgerUnavailable
from billing.ledger.budget_settings import Budgets, BudgetScope
from billing.ledger.budgets import Spender, in_force
from billing.periods import PeriodKind
from models.errors import EngineUnavailable
from models.fake_engine import FakeEngine
from serve.tracing.request_record import RequestRecord
from tests.serve.batches.uploading import chat_line, ended, jsonl, lines_of, made
from tests.serve.chat.test_compression import PASSAGES, agent
from tests.serve.compressing import ReadyModel, local_model
from tests.serve.money.test_promises import promised, record_of, service_of
from tests.serve.served import (
    HI,
    PROMPT_TOKENS,
    Client,
    Gate,
    Served,
    at_rest,
    eventually,
    model_document,
    serving,
    token_cost,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


def priced(input_usd: str, output_usd: str, minimum_usd: str = "0") -> dict[str, str]:
    return {
        "input_usd_per_mtok": input_usd,
        "output_usd_per_mtok": output_usd,
        "minimum_request_usd": minimum_usd,
    }


# At `small` all is a tenth of what it costs at `alpha`. Each other model is not to be landed at for one reason.
MODELS = [
    model_document("alpha", capabilities={"reasoning_effort": True}),
    model_document("small", price=priced("10", "40", "0.0001")),
    model_document("free", price=priced("0", "0")),
    model_document("dear", price=priced("10", "401")),
    model_document("lowest", price=priced("10", "40", "0.002")),
    model_document("short", price=priced("0", "0"), context_length=16),
]
LEXICAL = {
    "id": "lexical",
    "name": "Lexical",
    "blurb": "Scores with BM25.",
    "kind": "lexical",
    "price_usd_per_mtok_input": "1",
}
FULL, SMALL = token_cost(6), token_cost(6) // 10
MESSAGES = {"messages": HI, "max_tokens": 6}
DIALECTS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "chat": ("/v1/chat/completions", MESSAGES),
    "openai": ("/openai/v1/chat/completions", MESSAGES),
    "completions": ("/openai/v1/completions", {"model": "alpha", "prompt": "hi", "max_tokens": 6}),
    "responses": ("/openai/v1/responses", {"model": "alpha", "input": "hi", "max_output_tokens": 6}),
    "messages": ("/anthropic/v1/messages", {"model": "alpha", **MESSAGES}),
}
USAGE = {"stream_options": {"include_usage": True}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    billing = {
        "database_url": f"sqlite:///{folder / 'pith.db'}",
        "spool_path": str(folder / "spool.db"),
        "service_tiers": {"flex": 0.5, "priority": 2},
    }
    compressing = {"models": [LEXICAL], "chat": {"deadline_s": 30}}
    async with serving(
        folder,
        billing=billing,
        models=MODELS,
        server={"max_body_bytes": 65_536},
        compression=compressing,
        compressors={"lexical": ReadyModel(local_model())},
    ) as served:
        yield served


@pytest_asyncio.fixture(loop_scope="module")
async def served(module_served: Served) -> AsyncIterator[Served]:
    found = await module_served.renewed()
    await found.accounts.change_project(f"{found.workspace}/project", {"max_in_flight": None})
    yield found
    await found.assert_nothing_is_left_open()


async def budget(
    served: Served,
    limit: int,
    at_end: str = "model:small",
    *,
    scope: BudgetScope = "project",
    period: PeriodKind = "day",
    land_from_percent: int | None = None,
) -> str:
    of = served.workspace if scope == "workspace" else f"{served.workspace}/project"
    setting = Budgets(served.database, "test").set(
        scope, of, period, limit, now=datetime.now(UTC), at_end=at_end, land_from_percent=land_from_percent
    )
    return (await setting).id


@dataclass(frozen=True)
class Charged:
    model: str
    route: str
    ppm: int
    nano_usd: int


async def charged(served: Served) -> list[Charged]:
    await at_rest()
    query = text(
        "SELECT e.model_id, e.route, e.price_ppm, e.cost_nano_usd FROM usage_events e "
        "JOIN workspaces w ON w.id = e.workspace_id WHERE w.name = :name ORDER BY e.created_at"
    )
    rows = await served.database.read(lambda c: c.execute(query, {"name": served.workspace}).all())
    return [Charged(*row) for row in rows]


def landing(given: str, tier: str = "default", *, asked: str = "alpha", its: str = "default") -> Any:
    return {
        "asked": {"model": asked, "service_tier": its},
        "given": {"model": given, "service_tier": tier},
    }


def reply_of(client: Client, *, has: str) -> Any:
    """The reply, or what of a stream's last event is one, that has this member."""
    if client.reply_headers["content-type"].startswith("application/json"):
        return client.json()
    events = [json.loads(line[6:]) for line in client.body.decode().splitlines() if line[:7] == "data: {"]
    replies = [event.get("response") or event.get("message") or event for event in events]
    return [reply for reply in replies if has in reply][-1]


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_chat_goes_on_at_the_budgets_model_and_is_charged_its_prices(
    served: Served, dialect: str, stream: bool
) -> None:
    await budget(served, token_cost(5))
    path, body = DIALECTS[dialect]
    with_usage = USAGE if stream and path.startswith("/openai") and dialect != "responses" else {}
    client = await served.post(path, {**body, "stream": stream, **with_usage}).run()
    assert client.status == 200, client.body
    told = reply_of(client, has="service")
    assert told["service"]["landing"] == landing("small")
    assert told["service"]["billing"]["input_price_per_mtok"] == 10
    assert reply_of(client, has="model")["model"] == "small"
    (event,) = await charged(served)
    assert (event.model, event.ppm) == ("small", 10**6)
    assert event.route == f"landed:{'chat' if dialect == 'openai' else dialect}"
    # A message is a token more than the text alone.
    assert event.nano_usd == (SMALL - 10_000 if dialect == "completions" else SMALL)
    (request,) = served.engine.requests
    assert request.model_id == "small" and request.max_tokens == 6


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
async def test_a_chat_goes_on_as_flex(served: Served, stream: bool) -> None:
    await budget(served, FULL - 1, "flex")
    client = await served.chat(stream=stream).run()
    assert client.status == 200, client.body
    assert service_of(client)["landing"] == landing("alpha", "flex")
    assert b'"service_tier":"flex"' in client.body
    assert await charged(served) == [Charged("alpha", "flex:landed:chat", 500_000, FULL // 2)]
    assert [request.tier for request in served.engine.requests] == ["flex"]


async def test_a_chat_keeps_its_tier_at_another_model(served: Served) -> None:
    await budget(served, 2 * FULL - 1)
    client = await served.chat(service_tier="priority").run()
    assert service_of(client)["landing"] == landing("small", "priority", its="priority")
    assert await charged(served) == [Charged("small", "priority:landed:chat", 2_000_000, 2 * SMALL)]


async def test_with_room_nothing_lands(served: Served) -> None:
    await budget(served, FULL)
    client = await served.chat().run()
    assert "landing" not in service_of(client)
    assert await charged(served) == [Charged("alpha", "chat", 10**6, FULL)]
    # Of what it cost less than its hold, nothing is left: the next one lands, at a price that fits no more either.
    assert (await served.chat().run()).status == 402


async def test_a_free_model_goes_on_when_nothing_is_left(served: Served) -> None:
    await budget(served, 0, "model:free")
    assert [(await served.chat().run()).status for _ in range(3)] == [200] * 3
    assert await charged(served) == [Charged("free", "landed:chat", 10**6, 0)] * 3


NOWHERE: dict[str, tuple[str, dict[str, Any]]] = {
    "refuse": ("refuse", {}),
    "no such model": ("model:nobody", {}),
    "the model itself": ("model:alpha", {}),
    "one price is higher": ("model:dear", {}),
    "the minimum is higher": ("model:lowest", {}),
    "no room in its context": ("model:short", {"messages": [{"role": "user", "content": "so " * 20}]}),
    "no room for the reply": ("model:short", {"max_tokens": 15}),
    "an option that it does not take": ("model:small", {"reasoning_effort": "low"}),
    "as flex already": ("flex", {"service_tier": "flex"}),
}


@pytest.mark.parametrize("case", NOWHERE)
async def test_a_chat_that_cannot_land_is_refused_as_without_a_landing(
    served: Served, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pith.chat")
    at_end, fields = NOWHERE[case]
    await budget(served, SMALL, "refuse")
    refused = await served.chat(**fields).run()
    id_ = await budget(served, SMALL, at_end)
    client = await served.chat(**fields).run()
    assert (client.status, client.body) == (402, refused.body)
    assert client.json()["error"]["code"] == "quota_exceeded"
    assert served.engine.requests == [] and await charged(served) == []
    said = [record.getMessage() for record in caplog.records if id_ in record.getMessage()]
    assert len(said) == (at_end != "refuse") and all(f"no landing as {at_end}: " in line for line in said)


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
async def test_from_the_percentage_on_chats_land_though_there_is_room(served: Served, stream: bool) -> None:
    await budget(served, 4 * FULL, land_from_percent=50)
    for _ in range(3):
        client = await served.chat(stream=stream).run()
        assert client.status == 200, client.body
    assert service_of(client)["landing"] == landing("small")
    paid = [(event.model, event.nano_usd) for event in await charged(served)]
    assert paid == [("alpha", FULL)] * 2 + [("small", SMALL)]
    # What is no chat of a model's engine has the whole budget.
    squeeze = {"query": "Who won?", "input": PASSAGES}
    assert (await served.post("/v1/compress", squeeze).run()).status == 200


@pytest.mark.parametrize("case", [case for case in NOWHERE if case != "refuse"])
async def test_a_chat_that_cannot_land_goes_on_as_asked_while_there_is_room(
    served: Served, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pith.chat")
    at_end, fields = NOWHERE[case]
    first = await served.chat(**fields).run()
    (paid,) = await charged(served)
    limit = 6 * paid.nano_usd
    id_ = await budget(served, limit, at_end, land_from_percent=1)
    clients = [await served.chat(**fields).run() for _ in range(7)]
    statuses = [client.status for client in (first, *clients)]
    let_in = statuses.index(402)
    assert let_in >= 3 and statuses == [200] * let_in + [402] * (8 - let_in)
    assert all("landing" not in service_of(client) for client in clients[: let_in - 1])
    assert await charged(served) == [paid] * let_in
    said = [record.getMessage() for record in caplog.records if id_ in record.getMessage()]
    # The first had nothing before it.
    assert len(said) == 6 and all(f"no landing as {at_end}: " in line for line in said)


async def test_a_key_lands_at_no_model_that_it_may_not_use(served: Served) -> None:
    terms = KeyTerms(powers=KeyPowers(models=frozenset({"alpha"})))
    _, key = await served.accounts.keys.create(
        f"{served.workspace}/project", "of alpha", terms=terms, now=datetime.now(UTC)
    )
    await budget(served, FULL - 1)
    assert (await served.chat(key=key).run()).status == 402
    assert (await served.chat().run()).status == 200


async def test_there_is_one_landing_and_it_is_counted_in_every_budget(served: Served) -> None:
    await budget(served, FULL - 1, "model:small")
    await budget(served, SMALL - 1, "model:free", period="month")
    # Whichever is asked first, the other's model is not tried.
    statuses = {(await served.chat().run()).status for _ in range(2)}
    assert statuses <= {200, 402} and len(statuses) == 1
    assert {event.model for event in await charged(served)} <= {"free"}
    await budget(served, SMALL - 1, "model:small", period="month")
    assert (await served.chat().run()).status == 402


@pytest.mark.parametrize("strict", ["day", "month"])
async def test_a_budget_that_refuses_has_the_last_word(served: Served, strict: PeriodKind) -> None:
    for period in ("day", "month"):
        await budget(served, FULL - 1, "refuse" if period == strict else "model:small", period=period)
    assert (await served.chat().run()).status == 402
    await budget(served, FULL, "refuse", period=strict)
    assert (await served.chat().run()).status == 200


async def test_limits_that_are_no_budgets_refuse(served: Served) -> None:
    await budget(served, FULL - 1)
    await served.accounts.change_workspace(served.workspace, {"spend_limit_nano_usd": FULL - 1})
    assert (await served.chat().run()).status == 402


@pytest.mark.parametrize("percent", [100, 30])
async def test_a_budget_is_never_passed_whatever_lands_at_once(served: Served, percent: int) -> None:
    limit = 2 * FULL + 3 * SMALL
    await budget(served, limit, "model:small", scope="workspace", land_from_percent=percent)
    clients = await asyncio.gather(*(served.chat().run() for _ in range(12)))
    events = await charged(served)
    assert sum(event.nano_usd for event in events) <= limit
    landed = [event for event in events if event.model == "small"]
    assert landed and [client.status for client in clients].count(200) == len(events)
    ids = text(
        "SELECT workspace_id, id FROM projects WHERE workspace_id = (SELECT id FROM workspaces WHERE name = :n)"
    )
    of = await served.database.read(lambda c: c.execute(ids, {"n": served.workspace}).one())
    (state,) = await served.database.read(lambda c: in_force(c, Spender(of.workspace_id, of.id, "")))
    assert (state.used_nano_usd, state.held_nano_usd) == (sum(event.nano_usd for event in events), 0)


async def test_the_client_of_a_landed_stream_that_leaves_pays_the_prices_of_its_model(served: Served) -> None:
    await budget(served, token_cost(60) - 1)
    gate = Gate(3)
    served.engine = FakeEngine(token_s=1, sleep=gate)
    client = served.chat(stream=True, max_tokens=60)
    running = client.start()
    await asyncio.wait_for(gate.reached.wait(), 60)
    await eventually(lambda: client.body)
    client.gone.set()
    await asyncio.wait([running])
    (event,) = await charged(served)
    assert (event.model, event.route) == ("small", "landed:chat")
    (done,) = await served.events()
    assert event.nano_usd == max(token_cost(done.completion_tokens) // 10, 100_000)


async def test_a_model_that_is_away_answers_for_itself_and_nothing_is_held(served: Served) -> None:
    await budget(served, FULL - 1)
    served.engine.fails_with = EngineUnavailable("away", retry_after_s=7)
    client = await served.chat().run()
    assert (client.status, client.reply_headers["retry-after"]) == (503, "7")
    assert await charged(served) == []


class FaultyWrites:
    """A fake: what `fault` does to one of a database's writes, before or after it."""

    def __init__(self, served: Served, at: int, when: str, fault: Callable[[], None]) -> None:
        self._write, self._at, self._when, self._fault = served.database.write, at, when, fault
        self.asked = 0

    async def write(self, work: Any, *, durable: bool = True) -> Any:
        self.asked += 1
        is_now = self.asked == self._at
        if is_now and self._when == "before":
            self._fault()
        result = await self._write(work, durable=durable)
        if is_now and self._when == "after":
            self._fault()
        return result


def lose() -> None:
    raise LedgerUnavailable("a fault")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("fault", ["the client leaves", "the ledger is lost"])
async def test_whatever_becomes_of_a_landing_nothing_is_held_twice_or_left_held(
    served: Served, when: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await budget(served, 2 * FULL - 1)
    assert (await served.chat().run()).status == 200
    statuses = []
    for at in range(1, 9):
        client = served.chat()
        writes = FaultyWrites(served, at, when, client.gone.set if fault == "the client leaves" else lose)
        with monkeypatch.context() as patched:
            patched.setattr(served.database, "write", writes.write)
            await asyncio.wait([client.start()])
            await at_rest()
        await served.ledger.replay_spool()
        await served.ledger.keep_leases()
        await served.assert_nothing_is_left_open()
        statuses.append(client.status if client.sent else None)
        if writes.asked < at:
            break
    # At last no write was left to fail. Before, the hold of what was asked and that of the landing did.
    assert statuses[-1] == 200 and len(statuses) >= 4, statuses
    landed = [event for event in await charged(served) if event.route == "landed:chat"]
    assert {event.nano_usd for event in landed} == {SMALL} and len(landed) <= len(statuses)


async def test_the_limits_a_minute_count_it_once(served: Served) -> None:
    await served.accounts.change_project(f"{served.workspace}/project", {"tokens_per_minute": 1000})
    key = (await served.accounts.keys.create(f"{served.workspace}/project", "new", now=datetime.now(UTC)))[1]
    await budget(served, FULL - 1)
    assert (await served.chat(key=key).run()).status == 200
    left = (await served.get("/v1/limits", key=key).run()).json()["project"]["tokens_per_minute"]["remaining"]
    assert left == 1000 - PROMPT_TOKENS - 6


async def test_who_gave_no_limit_gets_no_more_than_is_enough(served: Served) -> None:
    await budget(served, token_cost(512) - 1)
    client = await served.post("/openai/v1/responses", {"model": "alpha", "input": "hi"}).run()
    assert client.status == 200, client.body
    (request,) = served.engine.requests
    assert (request.model_id, request.max_tokens) == ("small", 512)


async def test_the_line_of_a_batch_lands_at_the_batchs_part_of_the_price(served: Served) -> None:
    await budget(served, FULL // 2 + SMALL // 2)
    batch = await ended(served, await made(served, jsonl([chat_line("a"), chat_line("b")])))
    lines = await lines_of(served, batch.output_file_id)
    found = [line["response"]["body"]["service"].get("landing") for line in lines]
    assert sorted(found, key=str) == [None, landing("small")] or found == [landing("small")] * 2
    events = await charged(served)
    assert Charged("small", "batch:landed:chat", 500_000, SMALL // 2) in events
    await budget(served, 0, "flex")
    batch = await ended(served, await made(served, jsonl([chat_line("c")])))
    (line,) = await lines_of(served, batch.error_file_id)
    assert line["response"]["status_code"] == 402


@pytest.mark.parametrize("on_failure", ["whole", "refuse"])
async def test_a_prompt_is_compressed_for_the_model_that_it_lands_at(served: Served, on_failure: str) -> None:
    squeezed = {"target_ratio": 0.3, "model": "lexical", "on_failure": on_failure}
    asked = {"messages": agent(), "compression": squeezed}
    assert (await served.chat(**asked).run()).status == 200
    first = await charged(served)
    await budget(served, sum(event.nano_usd for event in first) // 2)
    client = await served.chat(**{**asked, "messages": agent(PASSAGES + " Nothing else.")}).run()
    assert client.status == 200, client.body
    service = client.json()["service"]
    assert (service["landing"], service["compression"]["status"]) == (landing("small"), "applied")
    saved = service["compression"]["tokens_saved"] * 10 / 10**6
    assert service["compression"]["saved_usd"] == pytest.approx(saved)
    second = (await charged(served))[len(first) :]
    assert {event.model for event in first} == {"alpha", "lexical"}
    assert {event.model for event in second} == {"small", "lexical"}


async def test_a_promise_names_what_is_charged(served: Served) -> None:
    await served.accounts.change_project(f"{served.workspace}/project", {"proof": True})
    key = (await served.accounts.keys.create(f"{served.workspace}/project", "new", now=datetime.now(UTC)))[1]
    await budget(served, FULL - 1)
    client = await served.chat(key=key, request_id=f"landed-{served.workspace}").run()
    record = promised(served, service_of(client)["metering"]["proof"])
    assert record == await record_of(served, f"landed-{served.workspace}")
    found = json.loads(record)
    assert (found["model_id"], found["route"], found["cost_nano_usd"]) == ("small", "landed:chat", SMALL)


async def test_usage_is_added_up_by_where_it_landed(served: Served) -> None:
    await budget(served, FULL + SMALL)
    for _ in range(2):
        assert (await served.chat().run()).status == 200
    report = (await served.get("/v1/usage?group_by=model,route&scope=project").run()).json()
    found = {(row["model"], row["route"]): row["cost_usd"] for row in report["data"]}
    assert found == {("alpha", "chat"): FULL / 1e9, ("small", "landed:chat"): SMALL / 1e9}


async def test_the_line_of_the_log_names_the_model_and_no_error(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[RequestRecord] = []
    whole = RequestRecord.fields

    def fields(self: RequestRecord) -> dict[str, Any]:
        ends.append(self)
        return whole(self)

    monkeypatch.setattr(RequestRecord, "fields", fields)
    await budget(served, FULL - 1)
    client: Client = await served.chat().run()
    assert client.status == 200
    for record in ends:
        assert (record.model, record.error, record.ended) == ("small", None, "complete")
