"""Originals over HTTP: kept when a compression asks for it, given back in slices, and docs/originals.md's example."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text as sql

from billing.caller import Caller, ProjectLimits
from billing.errors import LedgerUnavailable, UnknownOriginal
from billing.originals.original_store import OriginalStore
from billing.store.database import PatientWork, Work
from models.engine import EngineChunk, EngineRequest
from models.fake_engine import FakeEngine
from serve.originals.originals import Original, Originals
from serve.originals.route import PIECE_CHARACTERS, OriginalSlice
from tests.integration.contract_shapes import ERROR, mismatches
from tests.serve.compressing import (
    CONTEXT,
    QUERY,
    RETAIN_MAX_BYTES,
    RETAIN_MAX_S,
    Compressing,
    ReadyModel,
    compressing,
    local_model,
)
from tests.serve.loopback_service import Running, service
from tests.serve.originals.test_originals import long_text
from tests.serve.served import Client

MESSAGES = [{"role": "user", "content": "Wann endet die Garantie?"}, {"role": "tool", "content": CONTEXT}]


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Compressing]:
    async with compressing(tmp_path) as found:
        yield found


async def retained(served: Compressing, retain_s: int = 600, **fields: Any) -> Any:
    reply = await served.compress(compression={"retain_s": retain_s}, **fields).run()
    assert reply.status == 200, reply.body
    return reply.json()


async def caller_of(served: Compressing) -> Caller:
    return await served.accounts.authenticate(served.key, now=served.time[0])


def check_error(reply: Client, status: int, code: str, loc: list[Any] | None = None) -> None:
    assert reply.status == status, reply.body
    body = reply.json()
    assert mismatches(body, ERROR) == [] and body["error"]["code"] == code
    if loc is not None:
        assert [issue["loc"] for issue in body["detail"]] == [loc]


async def test_an_input_is_given_back_as_it_was(served: Compressing) -> None:
    now = await served.database.read(lambda c: float(c.execute(sql("SELECT pith_now()")).scalar_one()))
    compression = await retained(served, 600)
    assert now + 599 <= compression["retained_until"] <= now + 620
    reply = await served.original(compression["id"]).run()
    assert reply.status == 200 and reply.reply_headers["x-request-id"] == "original"
    assert reply.reply_headers["cache-control"] == "no-store"
    assert reply.json() == {
        "id": compression["id"],
        "object": "compression.original",
        "start": 0,
        "end": len(CONTEXT),
        "length": len(CONTEXT),
        "text": CONTEXT,
    }
    assert OriginalSlice.model_validate(reply.json())


@pytest.mark.parametrize(
    ("query", "start", "end"),
    [
        ("start=4&end=9", 4, 9),
        ("start=4", 4, len(CONTEXT)),
        ("end=9", 0, 9),
        ("start=7&end=7", 7, 7),
        (f"start={len(CONTEXT)}", len(CONTEXT), len(CONTEXT)),
        ("start=999999&end=9999999", len(CONTEXT), len(CONTEXT)),
        ("start=4&end=9999999", 4, len(CONTEXT)),
    ],
)
async def test_a_slice_is_cut_to_the_text(served: Compressing, query: str, start: int, end: int) -> None:
    id_ = (await retained(served))["id"]
    found = (await served.original(id_, query).run()).json()
    assert (found["start"], found["end"], found["text"]) == (start, end, CONTEXT[start:end])
    assert found["length"] == len(CONTEXT)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("start=-1", "start"),
        ("start=x", "start"),
        ("start=1.0", "start"),
        ("start=", "start"),
        ("end=%D9%A3", "end"),
        ("start=99999999999999999", "start"),
        ("start=" + "9" * 5000, "start"),
        ("start=5&end=4", "end"),
    ],
)
async def test_a_bad_offset_is_refused_under_its_name(served: Compressing, query: str, field: str) -> None:
    id_ = (await retained(served))["id"]
    check_error(await served.original(id_, query).run(), 422, "invalid_body", ["query", field])


async def test_offsets_are_those_of_the_receipts_spans(served: Compressing) -> None:
    """What a receipt says was kept, and so what was not, can be read by its own offsets."""
    text = CONTEXT.replace("pump", "\U0001f600\U0001f600 保証")
    compression = await retained(served, input=text, include=["spans"])
    for span in compression["kept"]:
        found = (
            await served.original(compression["id"], f"start={span['start']}&end={span['end']}").run()
        ).json()
        assert found["text"] in compression["output"]


async def test_of_messages_their_json_is_kept(served: Compressing) -> None:
    reply = await served.post(
        "/v1/compress", {"query": QUERY, "messages": MESSAGES, "compression": {"retain_s": 60}}
    ).run()
    found = (await served.original(reply.json()["id"]).run()).json()
    assert json.loads(found["text"]) == MESSAGES


async def test_items_of_a_batch_are_kept_each_for_its_time(served: Compressing) -> None:
    item = {"query": QUERY, "input": CONTEXT}
    items = [
        {**item, "id": "a"},
        {**item, "compression": {"retain_s": 0}},
        {**item, "compression": {"retain_s": 9}},
    ]
    for lines in (False, True):
        reply = await served.batch(items, lines=lines, compression={"retain_s": 600}).run()
        results = (
            [json.loads(line) for line in reply.body.splitlines()[:-1]] if lines else reply.json()["results"]
        )
        shared, none, own = sorted(results, key=lambda result: result["index"])
        assert "retained_until" not in none and "compression_id" not in none
        assert shared["retained_until"] > own["retained_until"] and shared["id"] == "a"
        for result in (shared, own):
            assert (await served.original(result["compression_id"]).run()).json()["text"] == CONTEXT


async def test_nothing_is_kept_unless_asked(served: Compressing) -> None:
    for options in ({}, {"retain_s": 0}, {"retain_s": None}):
        reply = await served.compress(compression=options).run()
        assert "retained_until" not in reply.json()
        check_error(await served.original(reply.json()["id"]).run(), 404, "original_not_found")
    count = sql("SELECT count(*) FROM originals")
    assert await served.database.read(lambda c: c.execute(count).scalar_one()) == 0


@pytest.mark.parametrize("retain_s", [RETAIN_MAX_S + 1, 10**9, 10**10, -1, 1.5, "60", True])
async def test_more_than_the_server_allows_is_refused_under_its_name(
    served: Compressing, retain_s: Any
) -> None:
    options = {"retain_s": retain_s}
    where = ["compression", "retain_s"]
    reply = await served.compress(compression=options).run()
    check_error(reply, 422, reply.json()["error"]["code"], ["body", *where])
    item = {"query": QUERY, "input": CONTEXT}
    shared = await served.batch([item], compression=options).run()
    check_error(shared, 422, shared.json()["error"]["code"], ["body", *where])
    batch = (await served.batch([{**item, "compression": options}]).run()).json()
    assert [issue["loc"] for issue in batch["results"][0]["detail"]] == [["body", "items", 0, *where]]
    assert await served.events() == []


async def test_the_demo_keeps_nothing_and_says_so(served: Compressing) -> None:
    reply = await served.demo(compression={"retain_s": 60}).run()
    check_error(reply, 422, "invalid_field", ["body", "compression", "retain_s"])
    assert (await served.demo(compression={"retain_s": 0}).run()).status == 200


async def test_for_another_project_it_is_as_unknown_as_one_that_never_was(served: Compressing) -> None:
    id_ = (await retained(served))["id"]
    owner = served.key
    other = await served.new_key()
    answers = [await served.original(name, key=other).run() for name in (id_, "cmp_none", "%00", "a" * 65)]
    for answer in answers:
        check_error(answer, 404, "original_not_found")
    assert len({answer.body for answer in answers}) == 1
    assert (await served.original(id_, key=owner).run()).status == 200


async def test_who_has_no_key_or_a_wrong_one_reads_nothing(served: Compressing) -> None:
    id_ = (await retained(served))["id"]
    check_error(await served.original(id_, headers={"Authorization": ""}).run(), 401, "missing_api_key")
    check_error(await served.original(id_, key="pith_a_b").run(), 403, "invalid_api_key")
    await served.accounts.revoke_workspace(served.workspace, now=served.time[0])
    check_error(await served.original(id_).run(), 403, "invalid_api_key")


async def test_what_has_expired_is_unknown(served: Compressing) -> None:
    id_ = (await retained(served))["id"]
    await served.database.write(lambda c: c.execute(sql("UPDATE originals SET expires_at = pith_now()")))
    check_error(await served.original(id_).run(), 404, "original_not_found")


async def test_reads_are_limited_as_often_as_requests_and_counted_apart(served: Compressing) -> None:
    await served.new_key(
        limits=ProjectLimits(requests_per_minute=2, tokens_per_minute=10_000, max_in_flight=1)
    )
    id_ = (await retained(served))["id"]
    first, second, third = [await served.original(id_).run() for _ in range(3)]
    assert first.status == second.status == 200
    assert first.reply_headers["x-ratelimit-remaining-requests"] == "1"
    assert "x-ratelimit-limit-tokens" not in first.reply_headers
    check_error(third, 429, "rate_limit_exceeded")
    assert (await served.compress().run()).status == 200


class FakeOriginalsOutage(OriginalStore):
    """A fake: the money of requests is written, and nothing of originals."""

    async def extend(self, project_id: str, ids: Any, retain_s: int) -> dict[str, float]:
        raise LedgerUnavailable("the fake outage is on")


async def test_a_request_succeeds_and_says_so_when_its_original_cannot_be_kept(served: Compressing) -> None:
    served.originals._writer._store = FakeOriginalsOutage(served.database)
    found = await retained(served)
    assert found["retained_until"] is None and found["output"]
    (event,) = await served.events()
    assert event["outcome"] == "completed"
    check_error(await served.original(found["id"]).run(), 404, "original_not_found")
    await served.assert_nothing_is_left_open()


async def test_an_unmetered_project_is_served_without_a_database_and_nothing_is_kept(
    served: Compressing,
) -> None:
    await served.new_key(metered=False)
    id_ = (await retained(served))["id"]
    served.database.is_down = True
    assert (await retained(served))["retained_until"] is None
    check_error(await served.original(id_).run(), 503, "ledger_unavailable")


async def test_a_project_whose_room_is_used_up_is_told_so_by_each_reply(served: Compressing) -> None:
    caller = await caller_of(served)
    filler = Original("filler", "x" * (RETAIN_MAX_BYTES - 1100))
    assert (await served.originals.keep(caller, [filler], retain_s=60)).until
    found = await retained(served)
    assert found["retained_until"] is None and found["output"]


async def test_a_client_that_leaves_while_its_original_is_kept_has_paid_and_holds_nothing(
    served: Compressing,
) -> None:
    entered, left = asyncio.Event(), asyncio.Event()

    class FakeSlow(OriginalStore):
        async def extend(self, project_id: str, ids: Any, retain_s: int) -> dict[str, float]:
            entered.set()
            await left.wait()
            return {}

    served.originals._writer._store = FakeSlow(served.database)
    client = served.compress(compression={"retain_s": 60})
    running = client.start()
    await entered.wait()
    client.gone.set()
    await running
    (event,) = await served.events()
    assert event["outcome"] == "completed"
    await served.assert_nothing_is_left_open()


async def test_a_long_original_comes_whole_and_in_pieces(served: Compressing) -> None:
    text = long_text(2 * PIECE_CHARACTERS + 1000) + '\n"\\\x00\x1f\u2028\x7f'
    await served.originals.keep(await caller_of(served), [Original("long", text)], retain_s=60)
    reply = await served.original("long").run()
    assert len([part for part in reply.sent if part["type"] == "http.response.body"]) > 3
    assert reply.reply_headers["content-type"].startswith("application/json")
    assert reply.reply_headers["cache-control"] == "no-store"
    found = reply.json()
    assert found["text"] == text and (found["start"], found["end"]) == (0, len(text)) == (0, found["length"])
    start, end = 100, 100 + 2 * PIECE_CHARACTERS
    found = (await served.original("long", f"start={start}&end={end}").run()).json()
    assert (found["text"], found["start"], found["end"]) == (text[start:end], start, end)


async def test_one_that_is_deleted_while_it_is_sent_is_not_taken_for_whole(served: Compressing) -> None:
    text = long_text(3 * PIECE_CHARACTERS)
    caller = await caller_of(served)
    await served.originals.keep(caller, [Original("long", text)], retain_s=60)
    reads = 0
    read = Originals.read

    async def dies(self: Originals, *arguments: Any) -> Any:
        nonlocal reads
        reads += 1
        if reads > 2:
            raise UnknownOriginal
        return await read(self, *arguments)

    served.originals.read = dies.__get__(served.originals)  # type: ignore[method-assign]
    reply = await served.original("long").run()
    assert reply.status == 200 and not reply.is_complete
    with pytest.raises(json.JSONDecodeError):
        reply.json()


async def test_nothing_of_a_text_is_logged(served: Compressing, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    id_ = (await retained(served))["id"]
    await served.original(id_).run()
    served.originals._writer._store = FakeOriginalsOutage(served.database)
    await retained(served)
    await served.original(id_, "start=x").run()
    assert "warranty" not in caplog.text and "outage" in caplog.text


async def test_what_is_kept_and_read_is_counted(served: Compressing) -> None:
    def counted(what: str, outcome: str) -> float | None:
        return served.registry.get_sample_value(f"pith_originals_{what}_total", {"outcome": outcome})

    assert (counted("kept", "kept"), counted("read", "served"), counted("read", "unknown")) == (0, 0, 0)
    id_ = (await retained(served))["id"]
    await served.original(id_).run()
    await served.original("cmp_none").run()
    assert (counted("kept", "kept"), counted("read", "served"), counted("read", "unknown")) == (1, 1, 1)


async def test_money_never_waits_in_a_queue_behind_originals(served: Compressing) -> None:
    """Every write of theirs is patient: SQLite's writer takes at most one between two groups of the rest."""
    works: list[bool] = []
    write = served.database.write

    async def noting(work: Work[Any], *, durable: bool = True) -> Any:
        works.append(isinstance(work, PatientWork))
        assert not (works[-1] and durable)
        return await write(work, durable=durable)

    served.database.write = noting  # type: ignore[method-assign]
    await retained(served)
    # A hold, a settlement; to extend, to write.
    assert works == [False, False, True, True]


PAGE = Path(__file__).parents[3] / "docs/originals.md"


# Only its middle is about the question.
NOTES = "\n\n".join(
    [
        f"The weather of day {day} was as dull as that of the day before, and nobody wrote more."
        for day in range(20)
    ]
    + ["The warranty of the pump ends after two years."]
    + [
        f"Parcel {number} went to the harbour by the afternoon cart, as all parcels do."
        for number in range(20)
    ]
)
FOOTER = re.compile(r"\[… (cmp_\w+)\]$")


@dataclass(kw_only=True)
class FakeCallingEngine(FakeEngine):
    """A fake that calls `open_original` with each of `wanted` in turn, for the id that its prompt names unless they
    name another, and then says its text."""

    wanted: list[dict[str, Any]] = field(default_factory=list)

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineChunk, None]:
        async with aclosing(super().generate(request)) as chunks:
            async for chunk in chunks:
                yield replace(chunk, data=self._calling(request, chunk.data)) if chunk.finished else chunk

    def _calling(self, request: EngineRequest, data: bytes) -> bytes:
        if not self.wanted:
            return data
        body = json.loads(data)
        named = FOOTER.search(text_of(request.messages[0]))
        arguments = {"id": named and named[1], **self.wanted.pop(0)}
        called = {"name": "open_original", "arguments": json.dumps(arguments)}
        calls = [{"id": f"call_{len(self.wanted)}", "type": "function", "function": called}]
        (choice,) = body["choices"]
        choice["message"] |= {"content": None, "tool_calls": calls}
        choice["finish_reason"] = "tool_calls"
        return json.dumps(body).encode()


def example(running: Running, folder: Path) -> dict[str, Any]:
    """What the page's block defines, for this server."""
    (block,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len([line for line in block.splitlines() if line]) <= 32
    (folder / "key").write_text(running.key)
    code = block.replace("http://127.0.0.1:8000", running.url).replace("var/demo-key", str(folder / "key"))
    defined: dict[str, Any] = {}
    exec(code, defined)
    return defined


def test_a_model_reads_what_was_left_out_of_its_prompt(tmp_path: Path) -> None:
    at = NOTES.index("Parcel 17")
    engine = FakeCallingEngine(wanted=[{"start": at, "end": at + 9}, {}, {"id": "cmp_none"}])
    question = "When does the warranty of the pump end?"
    messages = [
        {"role": "user", "content": [{"type": "text", "text": NOTES, "compress": True}]},
        {"role": "user", "content": question},
    ]
    with service(tmp_path, engine, compressor=ReadyModel(local_model()), tools=True) as running:
        defined = example(running, tmp_path)
        assert defined["answer"](messages).startswith("The quick")
        defined["pith"].close()
    sent = text_of(engine.requests[0].messages[0])
    assert len(sent) < len(NOTES) / 2 and "Parcel 17 " not in sent and FOOTER.search(sent)
    # The same in each turn, so the engine's prefix cache has it.
    assert {text_of(request.messages[0]) for request in engine.requests} == {sent}
    results = [
        json.loads(text_of(message)) for message in engine.requests[-1].messages if message["role"] == "tool"
    ]
    assert [result.get("text") for result in results] == ["Parcel 17", NOTES, None]
    assert results[2]["error"]["code"] == "original_not_found"


def text_of(message: Any) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)
