"""One project's batch, whatever is in it, is no concern of the others, and costs the ledger little."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text

from billing.batches.batch import StorageUnavailable
from billing.books.books import Books
from compression.pipeline.errors import CompressionTimedOut
from models.engine import EngineFault
from models.errors import EngineTimedOut
from models.fake_engine import FakeEngine
from serve.batches import runner
from serve.batches.line_run import failed_line
from serve.batches.runner import BatchRunner, Pace
from serve.batches.validation import MAX_ERRORS_BYTES
from serve.http.errors import Problem
from serve.money.admission import MOST_RECORDED_BYTES
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
from tests.serve.served import HI, MINIMUM_NANO_USD, PROMPT_TOKENS, Served

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("model", [[], {}, 7, True, ["alpha"]])
async def test_a_model_that_is_no_text_is_an_error_of_its_line(served: Served, model: Any) -> None:
    done = await ended(served, await made(served, jsonl([chat_line("a", model=model)])))
    assert done.status == "failed" and done.errors is not None and done.errors.data is not None
    assert [(error.code, error.line) for error in done.errors.data] == [("model_not_found", 1)]


async def test_errors_repeat_little_of_what_was_sent(served: Served) -> None:
    lines = [chat_line(str(number), model="m" * 3000) for number in range(100)]
    done = await ended(served, await made(served, jsonl(lines)))
    assert done.errors is not None and done.errors.data is not None
    assert max(len(error.message or "") for error in done.errors.data) < 200
    doubled = jsonl([chat_line("é" * 512), *(chat_line("é" * 512) for _ in range(99))])
    done = await ended(served, await made(served, doubled))
    stored = text("SELECT length(errors) FROM batches WHERE id = :id")
    size = await served.database.read(lambda c: c.execute(stored, {"id": done.id}).scalar_one())
    assert 0 < size <= MAX_ERRORS_BYTES


async def test_a_batch_that_cannot_be_checked_fails_alone(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = runner.Validation
    poison = await made(served, jsonl([chat_line("poison")]))

    class Poisoned(good):  # type: ignore[misc, valid-type]
        async def run(self, folder: Any) -> None:
            if self._job.batch.id == poison.id:
                raise TypeError("unhashable")
            await super().run(folder)

    monkeypatch.setattr(runner, "Validation", Poisoned)
    other = await made(served, jsonl([chat_line("a")]))
    await served.batches.jobs.once()
    assert (await looked_at(served, other)).status == "in_progress"
    failed = await looked_at(served, poison)
    assert failed.status == "failed" and failed.errors is not None and failed.errors.data is not None
    assert failed.errors.data[0].code == "internal_error"
    assert (await ended(served, other)).status == "completed"


async def test_a_batch_whose_files_cannot_be_written_keeps_nobody_waiting(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = [await made(served, jsonl([chat_line("a")])) for _ in range(2)]
    write = runner.write_output

    async def failing(store: Any, files: Any, job: Any) -> None:
        if job.batch.id == batches[0].id:
            raise StorageUnavailable("this file alone")
        await write(store, files, job)

    monkeypatch.setattr(runner, "write_output", failing)
    for batch in batches:
        await call(served, "POST", f"{BATCHES}/{batch.id}/cancel").run()
    with pytest.raises(StorageUnavailable):
        await served.batches.jobs.once()
    assert [(await looked_at(served, batch)).status for batch in batches] == ["finalizing", "cancelled"]


async def test_checking_inputs_keeps_no_files_waiting(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = await made(served, jsonl([chat_line("a")]))
    await call(served, "POST", f"{BATCHES}/{over.id}/cancel").run()
    waiting = [await made(served, jsonl([chat_line("a")])) for _ in range(3)]
    good, checked = runner.Validation.run, 0

    async def counted(self: Any, folder: Any) -> None:
        nonlocal checked
        checked += 1
        if checked == 2:
            raise asyncio.CancelledError
        await good(self, folder)

    monkeypatch.setattr(runner.Validation, "run", counted)
    with pytest.raises(asyncio.CancelledError):
        await served.batches.jobs.once()
    assert (await looked_at(served, over)).status == "cancelled"
    for batch in waiting:
        await call(served, "POST", f"{BATCHES}/{batch.id}/cancel").run()
    await served.batches.jobs.once()


@pytest.mark.parametrize("error", [EngineTimedOut("60 s", retry_after_s=1), CompressionTimedOut("60 s")])
async def test_what_ran_out_of_time_is_not_run_for_nothing_for_ever(served: Served, error: Any) -> None:
    served.engine = FakeEngine(fails_with=error)
    done = await ended(served, await made(served, jsonl([chat_line("a")])))
    (line,) = await lines_of(served, done.error_file_id)
    assert line["response"]["status_code"] == 503
    assert len(served.engine.requests) == 5
    await served.assert_nothing_is_left_open()


async def test_a_timeout_in_a_replica_is_told_from_an_engine_that_is_away() -> None:
    assert isinstance(EngineFault("timed_out", "60 s").error(), EngineTimedOut)
    assert not isinstance(EngineFault("unavailable", "full").error(), EngineTimedOut)
    assert EngineFault.of(EngineTimedOut("60 s", retry_after_s=2)).kind == "timed_out"


@pytest.mark.parametrize("bad", ["\0", "a\0b", "é", "a" * 65, "a.b"])
async def test_what_is_no_id_is_not_looked_for(
    served: Served, bad: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL refuses a text with a NUL, which would be a 500."""
    quoted = {"\0": "%00", "a\0b": "a%00b", "é": "%C3%A9"}.get(bad, bad)
    for store, names in (
        (served.batches.files.store, ("find", "listed", "forget")),
        (served.batches.batches._store, ("find", "listed", "cancel", "make")),
    ):
        for name in names:
            monkeypatch.setattr(type(store), name, None)
    for method, path, query in (
        ("GET", f"{FILES}/{bad}", ""),
        ("GET", f"{FILES}/{bad}/content", ""),
        ("DELETE", f"{FILES}/{bad}", ""),
        ("GET", FILES, f"after={quoted}"),
        ("GET", f"{BATCHES}/{bad}", ""),
        ("POST", f"{BATCHES}/{bad}/cancel", ""),
        ("GET", BATCHES, f"after={quoted}"),
    ):
        assert (await call(served, method, path, query=query).run()).status == 404, path
    asked = {"input_file_id": bad[:64], "endpoint": CHAT, "completion_window": "24h"}
    if len(bad) < 65:
        assert (await served.post(BATCHES, asked).run()).status == 404
    page = await call(served, "GET", FILES, query=f"purpose={quoted}").run()
    assert page.json()["data"] == []


async def test_metadata_has_no_nul_and_filenames_no_control_characters(served: Served) -> None:
    file = (await upload(served, b"{}").run()).json()
    asked = {"input_file_id": file["id"], "endpoint": CHAT, "completion_window": "24h"}
    for metadata in ({"k": "a\0b"}, {"a\0b": "v"}):
        assert (await served.post(BATCHES, {**asked, "metadata": metadata}).run()).status == 400
    kept = await served.post(BATCHES, {**asked, "metadata": {"k": "two\nlines"}}).run()
    assert kept.json()["metadata"] == {"k": "two\nlines"}
    client = upload(served, b"{}")
    client.pieces = [piece.replace(b"in.jsonl", b"i\xc2\x9bn\x7f.js") for piece in client.pieces]
    assert (await client.run()).json()["filename"] == "in.js"


async def test_a_result_that_is_too_large_is_charged_and_its_error_says_so(served: Served) -> None:
    served.engine = FakeEngine(text="x" * (MOST_RECORDED_BYTES + 1))
    done = await ended(served, await made(served, jsonl([chat_line("a")])))
    assert len(served.engine.requests) == 1
    (line,) = await lines_of(served, done.error_file_id)
    assert (line["response"]["status_code"], line["response"]["body"]["error"]["code"]) == (
        400,
        "result_too_large",
    )
    (event,) = await served.events()
    assert (event.prompt_tokens, event.cost_nano_usd) == (PROMPT_TOKENS, MINIMUM_NANO_USD // 2)
    assert line["response"]["body"]["service"]["billing"]["request_cost_usd"] == event.cost_nano_usd / 10**9
    assert (
        done.usage is not None
        and done.usage.input_tokens == line["response"]["body"]["usage"]["prompt_tokens"]
    )
    assert (await Books(served.database).reconcile(served.spool)).is_clean
    await served.assert_nothing_is_left_open()


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        (CHAT, {"n": 8, "max_tokens": 900, "logprobs": True, "top_logprobs": 20, "ignore_eos": True}),
        (CHAT, {"max_tokens": 2000, "logprobs": True, "top_logprobs": 20}),
        ("/v1/completions", {"prompt": "hi", "n": 16, "max_tokens": 1000, "logprobs": 20}),
    ],
)
async def test_what_cannot_be_kept_is_refused_before_the_engine_works(
    served: Served, url: str, asked: dict[str, Any]
) -> None:
    line = {"custom_id": "a", "method": "POST", "url": url, "body": {"model": "alpha", **asked}}
    if url == CHAT:
        line["body"]["messages"] = HI
    done = await ended(served, await made(served, jsonl([line]), endpoint=url))
    (failed,) = await lines_of(served, done.error_file_id)
    assert failed["response"]["status_code"] == 400, failed
    assert failed["response"]["body"]["error"]["param"] == "logprobs", failed
    assert (served.engine.requests, await served.events()) == ([], [])


async def test_a_line_without_a_limit_lists_no_more_than_is_kept(served: Served) -> None:
    asked = {"max_tokens": None, "logprobs": True, "top_logprobs": 20, "n": 2, "ignore_eos": True}
    done = await ended(served, await made(served, jsonl([chat_line("a", **asked)])))
    (request,) = served.engine.requests
    assert request.max_tokens == MOST_RECORDED_BYTES // (2 * 21 * 128)
    (line,) = await lines_of(served, done.output_file_id)
    assert line["response"]["body"]["choices"][0]["finish_reason"] == "length"


async def test_a_responses_limit_is_only_a_cap_and_so_is_what_is_kept(served: Served) -> None:
    body = {"model": "alpha", "input": "hi", "max_output_tokens": 2000, "top_logprobs": 20}
    body["include"] = ["message.output_text.logprobs"]
    url = "/v1/responses"
    line = {"custom_id": "a", "method": "POST", "url": url, "body": body}
    await ended(served, await made(served, jsonl([line]), endpoint=url))
    (request,) = served.engine.requests
    assert request.max_tokens == MOST_RECORDED_BYTES // (21 * 128)


async def test_a_project_whose_results_fill_its_room_runs_nothing_for_nothing(served: Served) -> None:
    batch = await made(served, jsonl([chat_line("a"), chat_line("b")]))
    await served.batches.jobs.once()
    runner_ = hasty(served)
    # Room for the input, and not for what its first line becomes.
    lines = replace(runner_._lines, most_kept_bytes=await bytes_of(served) + 1)
    await BatchRunner(runner_._store, lines, Pace(runner_._pace.interactive, 1, 1)).once()
    assert len(served.engine.requests) == 1
    done = await ended(served, batch)
    (good,) = await lines_of(served, done.output_file_id)
    (bad,) = await lines_of(served, done.error_file_id)
    assert (good["custom_id"], bad["custom_id"]) == ("a", "b")
    assert (bad["response"]["status_code"], bad["response"]["body"]["error"]["code"]) == (413, "files_full")
    for file_id in (done.input_file_id, done.output_file_id, done.error_file_id):
        assert (await call(served, "DELETE", f"{FILES}/{file_id}").run()).status == 200
    assert await bytes_of(served) == 0


async def bytes_of(served: Served) -> int:
    """What the project's files, and the results of its lines, count together."""
    found = text(
        "SELECT t.bytes FROM batch_file_totals t JOIN api_keys k ON k.project_id = t.project_id WHERE k.id = :id"
    )
    key_id = served.key.split("_")[1]
    return int(await served.database.read(lambda c: c.execute(found, {"id": key_id}).scalar_one()))


async def test_an_error_of_a_line_repeats_little() -> None:
    problem = Problem(422, "invalid_request_error", "invalid_body", "x" * 10**6)
    assert len(failed_line("a", "r", problem)) < 3000
