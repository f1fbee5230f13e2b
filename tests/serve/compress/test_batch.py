"""`POST /v1/batch/compress`: each item by itself, in one object or in lines, within one request's limits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from jsonschema import Draft202012Validator
from starlette.types import Message

from billing.caller import ProjectLimits
from compression.pipeline.errors import CompressorFailed, CompressorOverloaded
from tests.serve.compressing import (
    CONTEXT,
    GAPPED,
    INPUT_NANO_USD,
    LONGEST_INPUT_BYTES,
    QUERY,
    Compressing,
    compressing,
)
from tests.serve.served import Client, eventually

ORIGINAL_TOKENS = 38
CONCURRENCY = 3
FORMS = pytest.mark.parametrize("lines", [False, True], ids=["json", "lines"])
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Compressing]:
    async with compressing(tmp_path_factory.mktemp("compressing"), batch_concurrency=CONCURRENCY) as found:
        yield found


def item(name: str | None = None, source: str = CONTEXT, **fields: Any) -> dict[str, Any]:
    return {**({} if name is None else {"id": name}), "query": QUERY, "input": source, **fields}


def marked(name: str) -> str:
    """An input that the fakes can tell from others."""
    return f"{CONTEXT} {name}"


def lines_of(client: Client) -> list[dict[str, Any]]:
    *lines, rest = client.body.split(b"\n")
    assert rest == b""
    return [json.loads(line) for line in lines]


def answers(client: Client) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The results in the order of the items, and the summary, of either form."""
    assert client.status == 200, client.body
    if client.reply_headers["content-type"] == "application/x-ndjson":
        *results, last = lines_of(client)
        assert set(last) == {"object", "summary"} and last["object"] == "compression.summary"
        return sorted(results, key=lambda result: result["index"]), last["summary"]
    assert client.reply_headers["content-type"] == "application/json"
    body = client.json()
    assert list(body) == ["object", "model", "results", "summary"] and body["object"] == "list"
    return body["results"], body["summary"]


@FORMS
async def test_each_item_has_its_result_and_the_summary_their_sums(served: Compressing, lines: bool) -> None:
    client = await served.batch([item("a"), item("b", compression={"target_ratio": 1})], lines=lines).run()
    results, summary = answers(client)
    assert [(each["id"], each["index"], each["status"]) for each in results] == [
        ("a", 0, "ok"),
        ("b", 1, "ok"),
    ]
    single = (await served.compress().run()).json()
    for each in results:
        assert set(each) == {*single, "index", "status"}
        assert (each["object"], each["model"]) == ("compression", "lexical")
    assert (results[0]["output"], results[1]["output"]) == (single["output"], CONTEXT)
    output_tokens = sum(each["receipt"]["output_tokens"] for each in results)
    assert summary == {
        "items": 2,
        "succeeded": 2,
        "failed": 0,
        "original_tokens": 2 * ORIGINAL_TOKENS,
        "output_tokens": output_tokens,
        "tokens_saved": 2 * ORIGINAL_TOKENS - output_tokens,
        "compression_ratio": output_tokens / (2 * ORIGINAL_TOKENS),
        "metering": "persisted",
    }
    assert client.reply_headers["x-service-metering-status"] == "persisted"
    assert client.reply_headers["x-request-id"] == "compress"


async def test_the_answer_fits_its_documented_schema(served: Compressing) -> None:
    document = (await Client(served.api, "/openapi.json").run()).json()
    client = await served.batch([item("a"), item(input="")]).run()
    schema = {**document, "$ref": "#/components/schemas/BatchCompressResponse"}
    Draft202012Validator(schema).validate(client.json())


async def test_an_item_without_an_id_is_named_by_its_compression(served: Compressing) -> None:
    results, _ = answers(await served.batch([item(), item("same"), item("same")]).run())
    assert results[0]["id"].startswith("cmp_")
    assert [each["id"] for each in results[1:]] == ["same", "same"]


async def test_what_an_item_says_comes_before_what_the_batch_says(served: Compressing) -> None:
    client = await served.batch(
        [
            item(),
            item(compression={"target_ratio": 0.9}),
            item(compression={"preserve_order": True}),
            item(compression={}),
            item(compression={"keep": 0.9}),
        ],
        model="free",
        compression={"target_ratio": 0.7, "preserve_order": False},
    ).run()
    *results, promised = answers(client)[0]
    assert [each["receipt"]["target_ratio"] for each in results] == [0.7, 0.9, 0.7, 0.7]
    # A promise takes the place of the batch's ratio; this model can give none.
    assert [issue["loc"] for issue in promised["detail"]] == [["body", "items", 4, "compression", "keep"]]
    # The best paragraph first, but where an item wants the order of the source.
    first = [each["output"].startswith("The warranty") for each in results]
    assert first == [True, True, False, True]
    assert {each["model"] for each in results} == {"free"}


@FORMS
async def test_spans_and_marks_are_asked_for_by_an_item_or_for_all(served: Compressing, lines: bool) -> None:
    items = [item("all", GAPPED), item("none", GAPPED, include=[], compression={"mark_gaps": False})]
    client = await served.batch(
        items, lines=lines, include=["spans"], compression={"mark_gaps": True, "target_ratio": 0.6}
    ).run()
    every, none = answers(client)[0]
    assert "[…]" in every["output"] and every["kept"][0]["start"] == 0
    assert "[…]" not in none["output"] and "kept" not in none


@FORMS
async def test_a_bad_item_never_fails_the_others(served: Compressing, lines: bool) -> None:
    items = [
        item("good"),
        item("empty", ""),
        item("ratio", compression={"target_ratio": 2}),
        item("types", query=7),
        {"id": "missing", "query": "q"},
        "no object",
        {**item(), "id": 9},
        item("large", "a" * (LONGEST_INPUT_BYTES + 1)),
        item("query", query="q" * 20_001),
        item("last"),
    ]
    results, summary = answers(await served.batch(items, lines=lines).run())
    assert [each["index"] for each in results] == list(range(10))
    assert [each["status"] for each in results] == ["ok", *["error"] * 8, "ok"]
    assert [each["id"] for each in results] == [
        *("good", "empty", "ratio", "types", "missing", None, None, "large", "query", "last"),
    ]
    for each in results[1:9]:
        assert set(each) == {"id", "index", "status", "detail", "error"}
    assert [each["detail"][0]["loc"] for each in results[1:9]] == [
        ["body", "items", 1, "input"],
        ["body", "items", 2, "compression", "target_ratio"],
        ["body", "items", 3, "query"],
        ["body", "items", 4, "input"],
        ["body", "items", 5],
        ["body", "items", 6, "id"],
        ["body", "items", 7, "input"],
        ["body", "items", 8, "query"],
    ]
    assert results[2]["error"]["param"] == "items.2.compression.target_ratio"
    assert (summary["succeeded"], summary["failed"]) == (2, 8)
    assert len(await served.events()) == 2
    await served.assert_nothing_is_left_open()


async def test_an_items_misspelt_option_fails_that_item(served: Compressing) -> None:
    items = [item("ratio", ratio=0.5), item("inside", compression={"kept": 0.9}), item("good", user="u")]
    results, _ = answers(await served.batch(items).run())
    assert [each["status"] for each in results] == ["error", "error", "ok"]
    assert [each["error"]["message"] for each in results[:2]] == [
        "body.items.0.ratio: belongs in compression, as compression.target_ratio",
        "body.items.1.compression.kept: unknown option; did you mean keep?",
    ]


@FORMS
async def test_a_compressor_that_fails_at_one_item_fails_that_one(served: Compressing, lines: bool) -> None:
    names = ["full", "dead", "bug", "good"]
    served.model.failures = {
        marked("full"): CompressorOverloaded("64 wait"),
        marked("dead"): CompressorFailed("it died"),
        marked("bug"): ZeroDivisionError("secret"),
    }
    client = await served.batch([item(name, marked(name)) for name in names], lines=lines).run()
    results, _ = answers(client)
    codes = [each.get("error", {}).get("code") for each in results]
    assert codes == ["compressor_overloaded", "compressor_failed", "internal_error", None]
    assert b"secret" not in client.body
    assert len(await served.events()) == 1
    await served.assert_nothing_is_left_open()


async def test_each_item_is_an_event_with_its_cost_and_receipt(served: Compressing) -> None:
    results, _ = answers(await served.batch([item("a"), item("b", "The warranty ends.")]).run())
    events = await served.events()
    assert {event["request_id"] for event in events} == {"compress"}
    for event, receipt in zip(
        sorted(events, key=lambda event: event["prompt_tokens"], reverse=True),
        [each["receipt"] for each in results],
        strict=True,
    ):
        assert json.loads(event["receipt"]) == receipt
        assert event["cost_nano_usd"] == receipt["original_tokens"] * INPUT_NANO_USD


async def test_items_that_cannot_be_paid_fail_and_the_others_do_not(served: Compressing) -> None:
    await served.new_key(spend_limit_nano_usd=20 * INPUT_NANO_USD)
    results, _ = answers(await served.batch([item("dear"), item("cheap", "The warranty ends.")]).run())
    assert results[0]["error"]["code"] == "quota_exceeded" and isinstance(results[0]["detail"], str)
    assert results[1]["status"] == "ok"
    await served.assert_nothing_is_left_open()


async def test_256_items_are_taken_and_257_are_not(served: Compressing) -> None:
    results, summary = answers(await served.batch([item(source="The warranty ends.")] * 256).run())
    assert len(results) == summary["succeeded"] == 256
    assert served.model.most_running == CONCURRENCY
    for items, kind in (([item()] * 257, "too_long"), ([], "too_short"), ({}, "list_type")):
        client = await served.batch(items).run()
        assert client.status == 422
        assert [(each["loc"], each["type"]) for each in client.json()["detail"]] == [
            (["body", "items"], kind)
        ]


@pytest.mark.parametrize(
    ("fields", "loc"),
    [
        ({"model": "omega"}, ["body", "model"]),
        ({"model": 1}, ["body", "model"]),
        ({"compression": {"target_ratio": 0}}, ["body", "compression", "target_ratio"]),
        ({"compression": {"ratio": 0.5}}, ["body", "compression", "ratio"]),
        ({"keep": 0.9}, ["body", "keep"]),
        ({"items": None}, ["body", "items"]),
    ],
)
async def test_what_concerns_every_item_refuses_the_batch(
    served: Compressing, fields: dict[str, Any], loc: list[str]
) -> None:
    client = await served.post("/v1/batch/compress", {"items": [item()], **fields}).run()
    assert client.status == 422
    assert [each["loc"] for each in client.json()["detail"]] == [loc]
    assert served.model.started == []


async def test_a_line_leaves_as_soon_as_its_item_is_done(served: Compressing) -> None:
    names = ["a", "b", "c", "d", "e"]
    served.model.gates = {marked(name): asyncio.Event() for name in names}
    client = served.batch([item(name, marked(name)) for name in names], lines=True)
    running = client.start()
    await eventually(lambda: len(served.model.started) == CONCURRENCY)
    for count, name in enumerate(["c", "a", "e", "d", "b"], 1):
        served.model.gates[marked(name)].set()
        await eventually(lambda count=count: client.body.count(b"\n") >= count, f"line {count}")
        assert json.loads(client.body.splitlines()[count - 1])["id"] == name
    await running
    assert [line.get("id") for line in lines_of(client)] == ["c", "a", "e", "d", "b", None]
    assert client.is_complete and lines_of(client)[-1]["summary"]["succeeded"] == 5


@FORMS
async def test_a_client_that_leaves_stops_the_rest_and_pays_for_what_was_done(
    served: Compressing, lines: bool
) -> None:
    names = ["a", "b", "c", "d", "e", "f"]
    served.model.gates = {marked(name): asyncio.Event() for name in names[1:]}
    client = served.batch([item(name, marked(name)) for name in names], lines=lines)
    running = client.start()
    await eventually(lambda: len(served.model.started) == CONCURRENCY + 1, "b, c and d wait")
    client.gone.set()
    await running
    assert not client.is_complete
    assert sorted(served.model.cancelled) == [marked(name) for name in ("b", "c", "d")]
    assert served.model.started == [marked(name) for name in ("a", "b", "c", "d")]
    assert len(await served.events()) == 1
    await served.assert_nothing_is_left_open()


class StalledClient(Client):
    """A fake client that takes the head of the answer and one line, and then reads no more."""

    stalled = False

    async def send(self, message: Message) -> None:
        if len(self.sent) == 2:
            self.stalled = True
            await asyncio.Event().wait()
        await super().send(message)


async def test_a_client_that_reads_no_more_and_leaves_stops_the_rest(served: Compressing) -> None:
    names = ["a", "b", "c", "d", "e"]
    served.model.gates = {marked(name): asyncio.Event() for name in names[2:]}
    plain = served.batch([item(name, marked(name)) for name in names], lines=True)
    client = StalledClient(plain.app, plain.path, plain.method, plain.headers, plain.pieces)
    running = client.start()
    await eventually(lambda: client.stalled and served.model.running, "the second line waits")
    client.gone.set()
    await running
    assert sorted(served.model.cancelled) == served.model.started[2:] != []
    assert len(client.sent) == 2 and len(await served.events()) == 2
    await served.assert_nothing_is_left_open()


async def test_a_batch_is_one_request_with_the_tokens_of_its_items(served: Compressing) -> None:
    tokens = 3 * len(CONTEXT) + 3 * ORIGINAL_TOKENS
    limits = ProjectLimits(requests_per_minute=9, tokens_per_minute=tokens, max_in_flight=1)
    await served.new_key(limits=limits)
    client = await served.batch([item()] * 3).run()
    assert [each["status"] for each in answers(client)[0]] == ["ok"] * 3
    assert client.reply_headers["x-ratelimit-remaining-requests"] == "8"
    assert client.reply_headers["x-ratelimit-remaining-tokens"] == str(3 * ORIGINAL_TOKENS)
    assert (await served.batch([item()] * 3).run()).status == 200
    while (await served.batch([item()] * 3).run()).status == 200:
        # Counted exactly before it is refused: each batch takes no more than its tokens.
        tokens -= 3 * ORIGINAL_TOKENS
        assert tokens > 0
    refused = await served.batch([item()] * 3).run()
    assert (
        refused.status == 429
        and "tokens a minute" in refused.json()["detail"]
        and int(refused.reply_headers["retry-after"]) >= 1
    )
    await served.assert_nothing_is_left_open()


@FORMS
async def test_a_project_that_is_not_metered_is_told_so(served: Compressing, lines: bool) -> None:
    await served.new_key(metered=False)
    client = await served.batch([item()], lines=lines).run()
    assert client.reply_headers["x-service-metering-status"] == "not_applicable"
    assert answers(client)[1]["metering"] == "not_applicable"


async def test_the_summary_tells_of_usage_that_is_not_yet_in_the_ledger(served: Compressing) -> None:
    gate = served.model.gates[CONTEXT] = asyncio.Event()
    client = served.batch([item()], lines=True)
    running = client.start()
    await eventually(lambda: served.model.started)
    served.database.is_down = True
    gate.set()
    await running
    served.database.is_down = False
    assert answers(client)[1]["metering"] == "degraded"
    await served.ledger.replay_spool()
    await served.assert_nothing_is_left_open()


@pytest.mark.parametrize(
    ("accept", "lines"),
    [
        ("application/x-ndjson", True),
        ("Application/X-NDJSON; q=0.9, application/json;q=0.1", True),
        ("application/json", False),
        ("*/*", False),
    ],
)
async def test_lines_are_sent_to_who_asks_for_them(served: Compressing, accept: str, lines: bool) -> None:
    client = await served.post("/v1/batch/compress", {"items": [item()]}, Accept=accept).run()
    assert (client.reply_headers["content-type"] == "application/x-ndjson") is lines
