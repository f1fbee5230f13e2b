"""Exports on every database: every row once, in one order, whatever is written meanwhile, and to the last cent."""

from __future__ import annotations

import csv
import io
import json
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pyarrow.parquet
import pytest

from billing.adjustments.adjustments import Adjustments
from billing.errors import UnknownAccount
from billing.export import exporter as module
from billing.export.exporter import SETTLING_S, Exporter
from billing.export.rows import COLUMNS, Csv, Format, InvalidCursor, Selection, selection_of

if TYPE_CHECKING:
    from billing.caller import Caller
    from tests.billing.conftest import Books


@pytest.fixture
async def filled(books: Books, monkeypatch: pytest.MonkeyPatch) -> list[Caller]:
    """Two workspaces that spent, one of them with a credit and a refund, in more than one page each."""
    monkeypatch.setattr(module, "PAGE_ROWS", 3)
    callers = [await books.new_caller(), await books.new_caller()]
    for number in range(5):
        for caller in callers:
            hold = await books.hold(caller, 1000)
            await books.settle(hold, 100 + number)
    made = Adjustments(books.database, actor="test")
    await made.credit(callers[0].workspace_id, nano_usd=7, reason="=goodwill", idempotency_key="a")
    await made.refund(hold.event_id, reason="broken", idempotency_key="b")
    await books.at(books.now + timedelta(minutes=5))
    return callers


async def exported(books: Books, selection: Selection, limit: int | None = None) -> tuple[Any, Any]:
    """The rows as JSON lines have them, and what was left."""
    export = Exporter(books.database).stream("jsonl", selection, limit=limit)
    rows = [json.loads(line) for piece in [p async for p in export] for line in piece.splitlines()]
    assert len(rows) == export.rows
    return rows, export.left


async def test_every_row_is_there_once_in_order_and_adds_up_to_what_is_owed(
    books: Books, filled: list[Caller]
) -> None:
    rows, left = await exported(books, await Exporter(books.database).selection())
    assert left is None and len(rows) == len({row["id"] for row in rows}) == 12
    assert rows == sorted(rows, key=lambda row: (row["workspace_id"], row["at"], row["id"]))
    assert list(rows[0]) == list(COLUMNS)
    for caller in filled:
        workspace = await books.accounts.find_workspace(caller.workspace_id)
        amounts = [row["amount_nano_usd"] for row in rows if row["workspace_id"] == workspace.id]
        assert sum(amounts) == workspace.posted_nano_usd - workspace.credited_nano_usd
    (credit,) = [row for row in rows if row["kind"] == "credit"]
    assert (credit["amount_nano_usd"], credit["reason"], credit["model_id"]) == (-7, "=goodwill", None)
    (refund,) = [row for row in rows if row["kind"] == "refund"]
    assert refund["event_id"] in {row["id"] for row in rows if row["kind"] == "usage"}


async def test_it_goes_on_after_a_cursor_whatever_is_written_meanwhile(
    books: Books, filled: list[Caller]
) -> None:
    asked = await Exporter(books.database).selection()
    whole, _ = await exported(books, asked)
    rows: list[Any] = []
    left: Selection | None = asked
    while left is not None:
        some, left = await exported(books, left, limit=2)
        rows += some
        # Of the present, so no part of it.
        await books.settle(await books.hold(filled[0], 10), 5)
        left = selection_of(left.cursor) if left is not None else None
    assert rows == whole


async def test_the_end_never_reaches_into_what_is_still_being_written(
    books: Books, filled: list[Caller]
) -> None:
    exporter, now = Exporter(books.database), books.clock.moment
    assert (await exporter.selection()).until == now - timedelta(seconds=SETTLING_S)
    assert (await exporter.selection(until=now)).until == now - timedelta(seconds=SETTLING_S)
    assert (await exporter.selection(until=books.now)).until == books.now
    before, _ = await exported(books, await exporter.selection(until=books.now))
    after, _ = await exported(books, await exporter.selection(since=books.now))
    assert (len(before), len(after)) == (0, 12)


async def test_of_one_workspace_or_project_there_is_nothing_else(books: Books, filled: list[Caller]) -> None:
    exporter, (one, two) = Exporter(books.database), filled
    mine, _ = await exported(books, await exporter.selection(workspace=one.workspace_id))
    assert {row["workspace_id"] for row in mine} == {one.workspace_id} and len(mine) == 6
    # A credit is the workspace's, and no project's.
    projects, _ = await exported(books, await exporter.selection(project=one.project_id))
    assert {row["project_id"] for row in projects} == {one.project_id} and len(projects) == 5
    nothing = await exporter.selection(workspace=one.workspace_id, project=two.project_id)
    assert (await exported(books, nothing))[0] == []
    with pytest.raises(UnknownAccount):
        await exporter.selection(workspace="nobody")


@pytest.mark.parametrize("format", ["csv", "parquet"])
async def test_each_format_has_the_same_rows(books: Books, filled: list[Caller], format: Format) -> None:
    exporter = Exporter(books.database)
    selection = await exporter.selection()
    wanted, _ = await exported(books, selection)
    content = b"".join([piece async for piece in exporter.stream(format, selection)])
    if format == "csv":
        found: list[Any] = list(csv.DictReader(io.StringIO(content.decode())))
        assert [row["reason"] for row in found if row["kind"] == "credit"] == ["'=goodwill"]
        assert [int(row["amount_nano_usd"]) for row in found] == [row["amount_nano_usd"] for row in wanted]
    else:
        table = pyarrow.parquet.read_table(io.BytesIO(content))
        assert [str(field.type) for field in table.schema][:3] == [
            "string",
            "string",
            "timestamp[us, tz=UTC]",
        ]
        found = table.to_pylist()
        assert [row["amount_nano_usd"] for row in found] == [row["amount_nano_usd"] for row in wanted]
    assert [row["id"] for row in found] == [row["id"] for row in wanted]


async def test_an_export_of_nothing_is_a_whole_file(books: Books) -> None:
    exporter = Exporter(books.database)
    selection = await exporter.selection()
    content = {
        format: b"".join([piece async for piece in exporter.stream(format, selection)])
        for format in ("jsonl", "csv", "parquet")
    }
    assert content["jsonl"] == b"" and content["csv"].decode().split("\r\n")[0] == ",".join(COLUMNS)
    assert pyarrow.parquet.read_table(io.BytesIO(content["parquet"])).num_rows == 0


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@a", "\tx", "\rx"])
def test_a_cell_is_no_formula(text: str) -> None:
    row = dict.fromkeys(COLUMNS) | {"reason": text, "amount_nano_usd": -5}
    (found,) = csv.DictReader(io.StringIO(Csv().rows([row]).decode(), newline=""))
    assert found["month"] == "" and len(found) == len(COLUMNS)
    assert (found["reason"], found["amount_nano_usd"]) == (f"'{text}", "-5")


@pytest.mark.parametrize("text", ["", "x", "e30=", "W10=", "é", "WzEsMiwzLDQsNSw2LDdd", "A" * 2000, "=" * 4])
def test_what_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(InvalidCursor):
        selection_of(text)


def test_a_cursor_of_no_year_that_there_is_is_refused() -> None:
    beyond = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))
    with pytest.raises(InvalidCursor):
        selection_of(Selection(None, beyond).cursor)
