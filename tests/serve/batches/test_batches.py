"""Batches: each line once, in order, at a part of the price; what goes wrong with a line is in the error file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
import pytest_asyncio
from openai.types import Batch, Completion
from openai.types.chat import ChatCompletion
from openai.types.responses import Response
from sqlalchemy import text

from billing.accounts.keys import KeyChange
from billing.books.books import Books
from billing.caller import ProjectLimits
from models.errors import EngineFailed, EngineUnavailable
from models.fake_engine import FakeEngine
from serve.batches.runner import QUIET_S, BatchJobs, BatchRunner, Pace
from tests.serve.batches.uploading import (
    BATCHES,
    CHAT,
    FILES,
    call,
    chat_line,
    ended,
    hasty,
    jsonl,
    lines_of,
    looked_at,
    made,
    upload,
)
from tests.serve.served import Gate, Served, eventually, serving, token_cost

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    async with serving(tmp_path_factory.mktemp("served"), batches={"max_lines": 100}) as service:
        yield service


async def reconciles(served: Served) -> bool:
    return (await Books(served.database).reconcile(served.spool)).is_clean


async def test_every_line_is_answered_in_order_and_billed_at_half_the_price(served: Served) -> None:
    names = [f"line {number}" for number in range(12)]
    batch = await made(served, jsonl([chat_line(name) for name in names]), metadata={"job": "nightly"})
    assert (batch.status, batch.metadata, batch.output_file_id) == ("validating", {"job": "nightly"}, None)
    done = await ended(served, batch)
    assert done.status == "completed" and done.errors is None and done.error_file_id is None
    assert done.request_counts is not None and done.request_counts.model_dump() == {
        "total": 12,
        "completed": 12,
        "failed": 0,
    }
    assert done.usage is not None and (done.usage.input_tokens, done.usage.output_tokens) == (24, 72)
    lines = await lines_of(served, done.output_file_id)
    assert [line["custom_id"] for line in lines] == names
    assert len({line["id"] for line in lines}) == 12
    for line in lines:
        reply = line["response"]
        assert (reply["status_code"], line["error"]) == (200, None)
        assert ChatCompletion.model_validate(reply["body"], strict=True).usage is not None
        service = reply["body"]["service"]
        assert service["billing"]["request_cost_usd"] == token_cost(6) / 2 / 10**9
        assert service["metering"] == {"persisted": True, "status": "persisted"}
    events = await served.events()
    assert [event.cost_nano_usd for event in events] == [token_cost(6) // 2] * 12
    requests = text(
        "SELECT count(DISTINCT request_id) FROM usage_events WHERE price_ppm = 500000 AND route = 'batch:chat'"
    )
    assert await served.database.read(lambda c: c.execute(requests).scalar_one()) >= 12
    assert await reconciles(served)
    await served.assert_nothing_is_left_open()


async def test_lines_are_requests_in_the_background_and_outside_the_limits_of_the_project(
    served: Served,
) -> None:
    served = replace(
        served, key=await served.new_key(limits=ProjectLimits(requests_per_minute=3, max_in_flight=1))
    )
    batch = await made(served, jsonl([chat_line(str(number)) for number in range(8)]))
    done = await ended(served, batch)
    assert done.request_counts is not None and done.request_counts.completed == 8
    assert all(request.background for request in served.engine.requests)
    assert (await served.chat().run()).status == 200


async def test_a_line_that_cannot_be_run_is_in_the_error_file_and_costs_nothing(served: Served) -> None:
    lines = [
        chat_line("good"),
        chat_line("streams", stream=True),
        chat_line("value", temperature=9),
        chat_line("type", max_tokens="six"),
    ]
    done = await ended(served, await made(served, jsonl(lines)))
    assert done.request_counts is not None and (done.status, done.request_counts.failed) == ("completed", 3)
    good = await lines_of(served, done.output_file_id)
    bad = await lines_of(served, done.error_file_id)
    assert [line["custom_id"] for line in good] == ["good"]
    assert [line["custom_id"] for line in bad] == ["streams", "value", "type"]
    for line in bad:
        assert line["response"]["status_code"] == 400
        assert set(line["response"]["body"]["error"]) == {"message", "type", "param", "code"}
    assert len(await served.events()) == 1


@pytest.mark.parametrize(
    ("content", "code", "line"),
    [
        (b"", "empty_file", None),
        (b"\n \n", "empty_file", None),
        (b"{]\n", "invalid_json_line", 1),
        (b"\n[1]\n", "invalid_json_line", 2),
        (jsonl([chat_line("a"), chat_line("a")]), "duplicate_custom_id", 2),
        (jsonl([chat_line("")]), "invalid_custom_id", 1),
        (jsonl([chat_line("a\0b")]), "invalid_custom_id", 1),
        (jsonl([chat_line("a" * 513)]), "invalid_custom_id", 1),
        (jsonl([chat_line("a", method="GET")]), "invalid_method", 1),
        (jsonl([chat_line("a", url="/v1/embeddings")]), "mismatched_url", 1),
        (jsonl([chat_line("a", model="nobody")]), "model_not_found", 1),
        (jsonl([{**chat_line("a"), "body": "hi"}]), "invalid_body", 1),
        (jsonl([chat_line("a", pad="x" * 5000)]), "line_too_long", 1),
        (jsonl([chat_line(str(number)) for number in range(101)]), "too_many_requests", None),
        (b"\n" * 201 + jsonl([chat_line("a")]), "too_many_requests", None),
    ],
)
async def test_an_input_that_is_wrong_fails_as_a_whole_and_names_the_line(
    served: Served, content: bytes, code: str, line: int | None
) -> None:
    done = await ended(served, await made(served, content))
    assert done.status == "failed" and done.failed_at is not None
    assert done.errors is not None and done.errors.data is not None
    (error,) = done.errors.data
    assert (error.code, error.line) == (code, line)
    assert (done.output_file_id, done.error_file_id) == (None, None)
    assert await served.events() == []


async def test_urls_may_have_the_dialects_prefix(served: Served) -> None:
    lines = [chat_line("a", url=f"/openai{CHAT}"), chat_line("b")]
    done = await ended(served, await made(served, jsonl(lines), endpoint=f"/openai{CHAT}"))
    assert done.endpoint == f"/openai{CHAT}"
    assert done.request_counts is not None and done.request_counts.completed == 2


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"endpoint": "/v1/nothing"}, 400, "endpoint"),
        ({"completion_window": "1h"}, 400, "completion_window"),
        ({"metadata": {"k" * 65: "v"}}, 400, None),
        ({"input_file_id": "file-none"}, 404, None),
        ({"input_file_id": 7}, 400, "input_file_id"),
    ],
)
async def test_a_batch_that_is_refused_says_why(
    served: Served, fields: dict[str, Any], status: int, param: str | None
) -> None:
    file = (await upload(served, b"{}").run()).json()
    asked = {"input_file_id": file["id"], "endpoint": CHAT, "completion_window": "24h", **fields}
    client = await served.post(BATCHES, asked).run()
    assert client.status == status, client.body
    if param is not None:
        assert client.json()["error"]["param"] == param


async def test_an_engine_that_fails_is_asked_again_and_at_last_the_line_has_failed(served: Served) -> None:
    served.engine = FakeEngine(fails_with=EngineFailed("it died"), fails_after=2)
    batch = await made(served, jsonl([chat_line("a")]))
    done = await ended(served, batch)
    assert len(served.engine.requests) == 5
    (line,) = await lines_of(served, done.error_file_id)
    assert line["response"]["status_code"] == 502
    assert await served.events() == []
    await served.assert_nothing_is_left_open()


async def test_without_a_replica_a_line_waits_and_no_attempt_is_lost(served: Served) -> None:
    served.engine = FakeEngine(fails_with=EngineUnavailable("none is up", retry_after_s=1))
    batch = await made(served, jsonl([chat_line("a")]))
    await served.batches.jobs.once()
    for _ in range(8):
        await hasty(served).once()
    assert (await looked_at(served, batch)).status == "in_progress"
    served.engine = FakeEngine()
    assert (await ended(served, batch)).status == "completed"


async def test_while_the_ledger_is_away_lines_wait_and_nothing_is_spooled(served: Served) -> None:
    gate = Gate(3)
    served.engine = FakeEngine(token_s=1, sleep=gate)
    batch = await made(served, jsonl([chat_line("a")]))
    await served.batches.jobs.once()
    running = asyncio.create_task(hasty(served).once())
    await asyncio.wait_for(gate.reached.wait(), 60)
    served.database.is_down = True
    gate.opened.set()
    await asyncio.gather(running, return_exceptions=True)
    assert await served.spool.count_waiting() == 0
    served.database.is_down = False
    over = text("UPDATE batch_lines SET claimable_at = 0")
    await served.database.write(lambda c: c.execute(over) and None)
    served.engine = FakeEngine()
    assert (await ended(served, batch)).request_counts.completed == 1  # type: ignore[union-attr]
    assert len(await served.events()) == 1
    await served.ledger.keep_leases()
    assert await reconciles(served)


async def test_without_money_lines_fail_with_a_402(served: Served) -> None:
    served = replace(served, key=await served.new_key("poor", spend_limit_nano_usd=token_cost(6) // 2 + 1))
    done = await ended(served, await made(served, jsonl([chat_line("a"), chat_line("b")])))
    assert done.request_counts is not None and (
        done.request_counts.completed,
        done.request_counts.failed,
    ) == (
        1,
        1,
    )
    (line,) = await lines_of(served, done.error_file_id)
    assert (line["response"]["status_code"], line["response"]["body"]["error"]["code"]) == (
        402,
        "insufficient_quota",
    )
    assert await reconciles(served)


async def test_a_cancelled_batch_has_what_was_run_and_names_the_rest(served: Served) -> None:
    gate = Gate(3)
    served.engine = FakeEngine(token_s=1, sleep=gate)
    batch = await made(served, jsonl([chat_line(str(number)) for number in range(9)]))
    await served.batches.jobs.once()
    running = asyncio.create_task(hasty(served).once())
    await asyncio.wait_for(gate.reached.wait(), 60)
    cancelled = await call(served, "POST", f"{BATCHES}/{batch.id}/cancel").run()
    assert Batch.model_validate(cancelled.json(), strict=True).status == "cancelling"
    gate.opened.set()
    await running
    done = await ended(served, batch)
    assert done.status == "cancelled" and done.cancelled_at is not None
    good = await lines_of(served, done.output_file_id)
    bad = await lines_of(served, done.error_file_id)
    assert 1 <= len(good) <= 4 and len(good) + len(bad) == 9
    assert {line["error"]["code"] for line in bad} == {"batch_cancelled"}
    assert len(await served.events()) == len(good)
    again = await call(served, "POST", f"{BATCHES}/{batch.id}/cancel").run()
    assert (again.status, again.json()["error"]["code"]) == (409, "batch_ended")


async def test_a_batch_cancelled_before_it_began_has_no_files(served: Served) -> None:
    batch = await made(served, jsonl([chat_line("a")]))
    await call(served, "POST", f"{BATCHES}/{batch.id}/cancel").run()
    done = await ended(served, batch)
    assert (done.status, done.output_file_id, done.error_file_id) == ("cancelled", None, None)


async def test_what_has_not_run_when_a_batch_expires_is_named(served: Served) -> None:
    batch = await made(served, jsonl([chat_line("a"), chat_line("b")]))
    await served.batches.jobs.once()
    late = text("UPDATE batches SET expires_at = 0 WHERE id = :id")
    await served.database.write(lambda c: c.execute(late, {"id": batch.id}) and None)
    done = await ended(served, batch)
    assert done.status == "expired" and done.expired_at is not None
    lines = await lines_of(served, done.error_file_id)
    assert [(line["custom_id"], line["error"]["code"]) for line in lines] == [
        ("a", "batch_expired"),
        ("b", "batch_expired"),
    ]


async def test_a_file_is_not_deleted_under_the_batch_that_reads_it(served: Served) -> None:
    batch = await made(served, jsonl([chat_line("a")]))
    refused = await call(served, "DELETE", f"{FILES}/{batch.input_file_id}").run()
    assert (refused.status, refused.json()["error"]["code"]) == (409, "file_in_use")
    done = await ended(served, batch)
    for file_id in (batch.input_file_id, done.output_file_id):
        assert (await call(served, "DELETE", f"{FILES}/{file_id}").run()).status == 200


async def test_a_server_that_stops_puts_its_lines_back_uncharged(served: Served) -> None:
    gate = Gate(3)
    served.engine = FakeEngine(token_s=1, sleep=gate)
    batch = await made(served, jsonl([chat_line("a"), chat_line("b")]))
    await served.batches.jobs.once()
    running = asyncio.create_task(hasty(served).once())
    await asyncio.wait_for(gate.reached.wait(), 60)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert await served.events() == []
    await served.assert_nothing_is_left_open()
    served.engine = FakeEngine()
    assert (await ended(served, batch)).request_counts.completed == 2  # type: ignore[union-attr]


async def test_two_processes_share_a_batch_and_run_no_line_twice(served: Served) -> None:
    batch = await made(served, jsonl([chat_line(str(number)) for number in range(40)]))
    await served.batches.jobs.once()
    await asyncio.gather(hasty(served).once(), hasty(served).once())
    done = await ended(served, batch)
    assert len(served.engine.requests) == 40
    assert [line["custom_id"] for line in await lines_of(served, done.output_file_id)] == [
        str(number) for number in range(40)
    ]
    assert len(await served.events()) == 40


async def test_a_process_that_retires_ends_its_lines_and_leaves_the_others(served: Served) -> None:
    runner = served.batches.runner
    batch = await made(served, jsonl([chat_line("here"), chat_line("elsewhere")]))
    await served.batches.jobs.once()
    served.engine = FakeEngine(token_s=1, sleep=(gate := Gate(3)))
    retiring = BatchRunner(runner._store, runner._lines, Pace(runner._pace.interactive, 1, 1))
    running = asyncio.create_task(retiring.once())
    await asyncio.wait_for(gate.reached.wait(), 60)
    assert retiring.retire() == 1
    gate.opened.set()
    await running
    assert retiring.retire() == 0 and len(await served.events()) == 1
    await retiring.once()
    assert len(await served.events()) == 1
    assert (await ended(served, batch)).request_counts.completed == 2  # type: ignore[union-attr]


async def test_a_process_that_retires_checks_no_more_batches(served: Served) -> None:
    jobs = served.batches.jobs
    retiring = BatchJobs(jobs._store, jobs._files, jobs._endpoints, jobs._bounds)
    batch = await made(served, jsonl([chat_line("a")]))
    retiring.retire()
    await retiring.once()
    stored = text("SELECT status FROM batches WHERE id = :id")
    assert (
        await served.database.read(lambda c: c.execute(stored, {"id": batch.id}).scalar_one()) == "validating"
    )
    assert (await ended(served, batch)).status == "completed"


async def test_a_revoked_key_runs_no_more_lines(served: Served) -> None:
    batch = await made(served, jsonl([chat_line("a")]))
    await served.accounts.keys.revoke(served.key, now=datetime.now(UTC))
    served.batches.runner._lines.accounts._cache.clear()
    await served.batches.jobs.once()
    await hasty(served).once()
    await served.batches.jobs.once()
    stored = text("SELECT lines_failed FROM batches WHERE id = :id")
    failed = await served.database.read(lambda c: c.execute(stored, {"id": batch.id}).scalar_one())
    assert (failed, await served.events()) == (1, [])


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("revoked", "invalid_api_key"),
        ("expired", "invalid_api_key"),
        (KeyChange({"allowed_routes": frozenset({"batches", "files"})}), "route_not_allowed"),
        (KeyChange({"allowed_routes": frozenset({"chat", "files"})}), "route_not_allowed"),
        (KeyChange({"allowed_models": frozenset({"beta"})}), "model_not_found"),
    ],
    ids=["revoked", "expired", "no chat", "no batches", "no model"],
)
async def test_a_line_runs_with_its_key_as_that_is_by_then(
    served: Served, change: str | KeyChange, code: str
) -> None:
    now, runner = datetime.now(UTC), served.batches.runner
    batch = await made(served, jsonl([chat_line("before"), chat_line("after")]))
    await served.batches.jobs.once()
    served.engine = FakeEngine(token_s=1, sleep=(gate := Gate(3)))
    one_line = BatchRunner(runner._store, runner._lines, Pace(runner._pace.interactive, 1, 1))
    running = asyncio.create_task(one_line.once())
    await asyncio.wait_for(gate.reached.wait(), 60)
    # A line that is being answered is answered.
    if change == "revoked":
        await served.accounts.keys.revoke(served.key, now=now)
    elif change == "expired":
        ends = text("UPDATE api_keys SET expires_at = 1 WHERE id = :id")
        await served.database.write(lambda c: c.execute(ends, {"id": served.key.split("_")[1]}) and None)
    else:
        assert isinstance(change, KeyChange)
        await served.accounts.keys.change(served.key.split("_")[1], change, now=now)
    runner._lines.accounts._cache.clear()
    gate.opened.set()
    await running
    _, served.key = await served.accounts.keys.create(f"{served.workspace}/project", "reader", now=now)
    done = await ended(served, batch)
    assert [line["custom_id"] for line in await lines_of(served, done.output_file_id)] == ["before"]
    (line,) = await lines_of(served, done.error_file_id)
    assert (line["custom_id"], line["response"]["body"]["error"]["code"]) == ("after", code)
    assert len(await served.events()) == 1
    await served.assert_nothing_is_left_open()


async def test_batches_are_their_projects_alone_and_listed_in_pages(served: Served) -> None:
    batches = [(await made(served, jsonl([chat_line("a")]))).id for _ in range(3)]
    stranger = await served.new_key()
    for method, tail in (("GET", ""), ("POST", "/cancel")):
        refused = await call(served, method, f"{BATCHES}/{batches[0]}{tail}", key=stranger).run()
        assert (refused.status, refused.json()["error"]["code"]) == (404, "batch_not_found")
    page = (await call(served, "GET", BATCHES, query="limit=2").run()).json()
    assert ([one["id"] for one in page["data"]], page["has_more"]) == (batches[:0:-1], True)
    rest = (await call(served, "GET", BATCHES, query=f"after={batches[1]}").run()).json()
    assert [one["id"] for one in rest["data"]] == batches[:1]
    for batch_id in batches:
        await call(served, "POST", f"{BATCHES}/{batch_id}/cancel").run()
    await served.batches.jobs.once()


async def test_an_unmetered_project_has_its_lines_too(served: Served) -> None:
    served = replace(served, key=await served.new_key("free", metered=False))
    done = await ended(served, await made(served, jsonl([chat_line("a")])))
    (line,) = await lines_of(served, done.output_file_id)
    assert line["response"]["body"]["service"]["metering"]["status"] == "not_applicable"


async def test_few_lines_run_beside_interactive_requests(served: Served) -> None:
    pace = served.batches.runner._pace
    gate = Gate(2)
    served.engine = FakeEngine(token_s=1, sleep=gate)
    asking = served.chat().start()
    await eventually(lambda: pace.interactive.under_way == 1)
    assert pace.lines() == pace.beside == 1
    gate.opened.set()
    await asking
    # The next one may come at any moment.
    assert (pace.interactive.under_way, pace.lines()) == (0, 1)
    pace.interactive._last -= QUIET_S
    assert pace.lines() == pace.alone == 4


async def test_completions_and_responses_are_run_too(served: Served) -> None:
    for endpoint, body, shape in (
        ("/v1/completions", {"prompt": ["hi", "ho"], "max_tokens": 3}, Completion),
        ("/v1/responses", {"input": "hi", "max_output_tokens": 16}, Response),
    ):
        lines = [{"custom_id": "a", "method": "POST", "url": endpoint, "body": {"model": "alpha", **body}}]
        lines.append({**lines[0], "custom_id": "s", "body": {"stream": True, **lines[0]["body"]}})
        done = await ended(served, await made(served, jsonl(lines), endpoint=endpoint))
        (good,) = await lines_of(served, done.output_file_id)
        (bad,) = await lines_of(served, done.error_file_id)
        assert shape.model_validate(good["response"]["body"], strict=True).usage is not None
        assert (bad["custom_id"], bad["response"]["body"]["error"]["param"]) == ("s", "stream")
    assert await reconciles(served)
    await served.assert_nothing_is_left_open()


async def test_what_is_running_goes_on_while_the_ledger_is_away_and_is_put_back_by_a_stop(
    served: Served,
) -> None:
    gate = Gate(3)
    served.engine = FakeEngine(token_s=1, sleep=gate)
    batch = await made(served, jsonl([chat_line("a")]))
    await served.batches.jobs.once()
    runner = hasty(served)
    running = asyncio.create_task(runner.once())
    await asyncio.wait_for(gate.reached.wait(), 60)
    served.database.is_down = True
    runner._look_at = 0.0
    assert await runner._keep_and_fill() is not None
    assert not running.done() and len(runner._running) == 1
    served.database.is_down = False
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert runner._running == {}
    served.engine = FakeEngine()
    assert (await ended(served, batch)).status == "completed"
