"""Archiving a month: every event is in a file that was read again, the books say what they said, and a process that is
killed between any two steps loses and doubles nothing."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyarrow.parquet import read_table
from sqlalchemy import Connection, insert, text

from billing.adjustments.adjustment import EventArchived
from billing.adjustments.adjustments import Adjustments
from billing.archive import archiver as archive_module
from billing.archive import month_sql
from billing.archive.archiver import (
    Archiver,
    MonthWriter,
    Planned,
    admit,
    archived_events,
    check_all,
    find,
    planned,
)
from billing.archive.month_files import EventsFile, alone
from billing.archive.month_sql import Month, first_kept
from billing.books import proof
from billing.books.books import Books as Reader
from billing.books.compressions import comparisons, receipts
from billing.books.saving import Dimension
from billing.books.statement_proof import statement_proof
from billing.books.usage_report import UsageSum, usage
from billing.errors import ArchiveDamaged, ArchiveRefused, ClockBehind, NoProof, RowRefused
from billing.ledger import ledger_sql
from billing.ledger.budget_settings import Budgets
from billing.ledger.ledger import Ledger
from billing.ledger.recording import replay, retry
from billing.price import cost
from billing.rollups import checkpoint_sql
from billing.rollups.archived import ArchivedSumsChanged, PeriodArchived
from billing.rollups.checkpoint_sql import Sum
from billing.rollups.due_sums import refill
from billing.rollups.event_sums import line_of, text_of_events
from billing.rollups.partitions import make_months
from billing.store.schema import usage_events
from billing.transparency import places, verify
from billing.usage import Hold, UsageEvent, UsageFigures, mint_event_id
from tests.billing.archive.killed import archiving
from tests.billing.books.test_proof import use
from tests.billing.chats import Chat, Chats, forge
from tests.billing.conftest import NOW, PRICES, event_row
from tests.billing.rollups.test_usage_sums import random_event
from tests.billing.transparency.logged import SIGNER, sequencer

if TYPE_CHECKING:
    from billing.caller import Caller
    from tests.billing.conftest import Books

KEEP = 3
SEPTEMBER, OCTOBER = datetime(2026, 9, 5, 12, tzinfo=UTC), datetime(2026, 10, 31, 23, 30, tzinfo=UTC)
LATER = datetime(2027, 1, 20, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_sql, "EVENTS_IN_ONE", 3)
    monkeypatch.setattr(proof, "EVENTS_AT_ONCE", 2)
    monkeypatch.setattr(archive_module, "PAGE_ROWS", 3)
    monkeypatch.setattr("billing.archive.archiver.ROWS_AT_ONCE", 4)


@pytest.fixture
async def filled(books: Books) -> list[Caller]:
    """Two workspaces with usage in September, October and November, and a refund; now it is January."""
    callers = [await books.new_caller(), await books.new_caller()]
    for day in range(4):
        for caller in callers:
            for first in (SEPTEMBER, OCTOBER - timedelta(days=3), NOW):
                naming = replace(caller, person=f"psn_{day % 2}", tags=("all", f"day-{day}"))
                await use(
                    books, naming if day else caller, first + timedelta(days=day, minutes=day), 1000 + day
                )
    chats = await Chats.of(books, callers[0])
    await chats.settle(Chat(conversation="a"), now=SEPTEMBER)
    # It ended, and was charged, in the month after that in which it began.
    late = replace(callers[1], person="psn_0", tags=("all",))
    hold = await books.hold(late, 10**6, now=OCTOBER + timedelta(minutes=29))
    await books.at(OCTOBER + timedelta(hours=1))
    due = cost(PRICES[0], prompt_tokens=1000, completion_tokens=0, minimum=True)
    figures = UsageFigures(1000, 0, 0, stream=False)
    await books.ledger.settle(hold, figures=figures, cost=due, outcome="completed", now=books.clock.moment)
    event = next(event for event in await books.events() if event.settled_at.month == 9)
    await Adjustments(books.database, actor="test").refund(
        event.event_id, nano_usd=7, reason="broken", idempotency_key="a"
    )
    await books.at(LATER)
    return callers


def _execute(connection: Connection, *, statement: Any) -> None:
    connection.execute(statement)


class AfterTheLog(Archiver):
    """Beside a server, which has put what waits into the transparency log."""

    async def archive(self, keep_months: int) -> list[str]:
        await sequencer(self._database).once()
        return await super().archive(keep_months)


def archiver(books: Books, folder: Path, steps: list[str] | None = None) -> Archiver:
    tell = (lambda step: None) if steps is None else steps.append
    return AfterTheLog(books.database, books.spool, folder, actor="test", tell=tell)


async def said(books: Books, callers: Sequence[Caller]) -> list[Any]:
    """All that reports say which an archive must not change."""
    reader, found = Reader(books.database), list[Any]()
    groups: tuple[list[Dimension], ...] = (["workspace"], ["day", "key"], ["month", "model"], ["route"])
    groups += (["workspace", "person"], ["day", "tag"], ["month", "person"])
    for by in groups:
        found.append(await books.usage(by))
    since, until = datetime(2026, 9, 6, tzinfo=UTC), datetime(2026, 11, 3, tzinfo=UTC)
    found.append(await books.usage(["day"], since=since, until=until))
    for caller in callers:
        for month in ("2026-09", "2026-10", "2026-11", "2027-01"):
            one = await reader.statement(caller.workspace_id, month)
            found.append(replace(one, comparisons=(), is_archived=False))
    totals = (await reader.reconcile(books.spool)).totals
    return [*found, totals]


async def assert_clean(books: Books) -> None:
    for full in (False, True):
        found = await Reader(books.database).reconcile(books.spool, full=full)
        wrong = (found.differences, found.mispriced, found.changed, found.wrong_sums, found.wrong_rows)
        assert (wrong, found.wrong_adjustments, found.wrong_log) == (([], (), (), (), ()), (), ())
    assert await books.differences() == []


def rows_of(folder: Path) -> list[dict[str, Any]]:
    rows = [row for path in sorted(folder.glob("*.parquet")) for row in read_table(path).to_pylist()]
    return sorted(rows, key=lambda row: str(row["event_id"]))


async def stored(books: Books) -> list[dict[str, Any]]:
    found = await books.database.read(
        lambda c: c.execute(usage_events.select().order_by(usage_events.c.event_id)).all()
    )
    return [dict(row._mapping) for row in found]


async def test_the_books_say_after_it_what_they_said_before(
    books: Books, filled: list[Caller], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_module, "EVENTS_IN_FILE", 5)
    folder, steps = tmp_path / "archive", list[str]()
    before, events = await said(books, filled), await stored(books)
    assert await planned(books.database, KEEP) == [Planned("2026-09", 10)]
    assert await archiver(books, folder).archive(KEEP) == ["2026-09"]
    assert await archiver(books, folder, steps).archive(2) == ["2026-10"]
    assert steps[0] == "2026-10: sealed" and steps[-1] == "2026-10: dropped"
    assert await archiver(books, folder).archive(2) == [] == await planned(books.database, 2)

    archived = rows_of(folder)
    assert archived == [
        event for event in events if event["event_id"] < _id(datetime(2026, 11, 1, tzinfo=UTC))
    ]
    assert len(archived) == 19 and archived + await stored(books) == events
    assert await said(books, filled) == before
    await assert_clean(books)
    assert await Reader(books.database).rebuild(actor="test", now=LATER) == []
    assert await said(books, filled) == before
    # Of each month a file for each workspace here, since a file has 5 events or one workspace.
    assert [path.name for path in sorted(folder.glob("usage-*"))] == [
        "usage-2026-09-001.parquet",
        "usage-2026-09-002.parquet",
        "usage-2026-09.json",
        "usage-2026-10-001.parquet",
        "usage-2026-10-002.parquet",
        "usage-2026-10.json",
    ]
    assert {oct(path.stat().st_mode & 0o777) for path in folder.iterdir()} == {"0o600"}
    manifest = json.loads((folder / "usage-2026-10.json").read_text())
    assert manifest["events"] == 9 and sum(one[3] for one in manifest["sums"]) == sum(
        row["cost_nano_usd"] - row["written_off_nano_usd"] for row in archived if row["settled_at"].month > 9
    )
    assert await check_all(books.database, folder) == 4


@pytest.mark.parametrize(("is_held", "is_first"), [(True, True), (False, False)])
async def test_a_budget_that_counts_an_archived_event_in_the_next_month_is_not_found_wrong(
    books: Books, tmp_path: Path, is_held: bool, is_first: bool
) -> None:
    caller, december = await books.new_caller(), datetime(2026, 12, 1, tzinfo=UTC)
    budgets = Budgets(books.database, "test")
    await budgets.set("workspace", caller.workspace_id, "month", 10**10, now=NOW)

    async def hold() -> Hold:
        late = december - timedelta(milliseconds=1)
        opening = partial(books.ledger.hold, caller, model_id="model-a", amount_nano_usd=10**9, now=late)
        return await opening(pricing_version=books.pricing_version, request_id="late")

    # Its hold is counted in December, the server's clock being behind; or it is gone by then, and its charge is.
    late = None if is_held else await hold()
    await books.at(december + timedelta(hours=1))
    await books.sweep()
    if not is_first:
        await use(books, caller, books.clock.moment)
    late = late or await hold()
    figures = UsageFigures(1000, 0, 0, stream=False)
    due = cost(PRICES[0], prompt_tokens=1000, completion_tokens=0, minimum=True)
    await books.ledger.settle(late, figures=figures, cost=due, outcome="completed", now=books.clock.moment)
    counted = text("SELECT posted_nano_usd FROM budget_counters WHERE id LIKE '%2026-12%'")
    posted = await books.database.read(lambda c: c.execute(counted).scalar_one())
    assert posted == due.nano_usd * (1 if is_first else 2)
    await assert_clean(books)

    await books.at(LATER)
    assert await archiver(books, tmp_path / "archive").archive(1) == ["2026-11"]
    await assert_clean(books)
    assert await Reader(books.database).rebuild(actor="test", now=LATER) == []
    assert await books.database.read(lambda c: c.execute(counted).scalar_one()) == posted


def _id(moment: datetime) -> str:
    return mint_event_id(moment)[:12]


async def test_a_sum_that_was_lost_is_made_anew_from_what_is_kept(
    books: Books, filled: list[Caller], tmp_path: Path
) -> None:
    before = await said(books, filled)
    await archiver(books, tmp_path / "archive").archive(KEEP)
    for table in ("usage_days", "usage_months"):
        clearing = text(f"DELETE FROM {table}")
        await books.database.write(partial(_execute, statement=clearing))
    assert not (await Reader(books.database).reconcile(books.spool)).is_clean
    await Reader(books.database).rebuild(actor="test", now=LATER)
    assert await said(books, filled) == before
    await assert_clean(books)


async def test_sums_by_label_of_archived_days_stay_and_others_are_made_anew(
    books: Books, filled: list[Caller], tmp_path: Path
) -> None:
    """Of the day after October, on which an event of October was settled, nothing is made anew either."""
    await archiver(books, tmp_path / "archive").archive(2)
    before = await said(books, filled)
    assert len(await books.usage(["month", "tag"])) == 4 * 3
    for table, span in (("label_days", "day >= '2026-11-02'"), ("label_months", "settled_month = '2026-11'")):
        for change in (
            f"DELETE FROM {table} WHERE kind = 'tag' AND {span}",
            f"UPDATE {table} SET requests = 7 WHERE {span}",
        ):
            await books.database.write(partial(_execute, statement=text(change)))
    reader = Reader(books.database)
    found = await reader.reconcile(books.spool, full=True)
    assert not found.is_clean
    assert {(one.table, one.key[0]) for one in found.wrong_rows} >= {("label_months", "2026-11")}
    assert {one.key[0] for one in found.wrong_rows} == {"2026-11", "2026-11-21", "2026-11-22", "2026-11-23"}
    await reader.rebuild(actor="test", now=LATER)
    assert await said(books, filled) == before
    await assert_clean(books)


@pytest.mark.parametrize("change", ["requests = requests + 1", "prompt_tokens = prompt_tokens + 1"])
async def test_kept_sums_that_somebody_changed_are_named_and_nothing_is_made_of_them(
    books: Books, filled: list[Caller], tmp_path: Path, change: str
) -> None:
    await archiver(books, tmp_path / "archive").archive(KEEP)
    statement = text(f"UPDATE archived_days SET {change}")
    await books.database.write(partial(_execute, statement=statement))
    found = await Reader(books.database).reconcile(books.spool, full=True)
    assert not found.is_clean and [one.month for one in found.wrong_archives] == ["2026-09"]
    with pytest.raises(ArchivedSumsChanged, match="from a backup"):
        await Reader(books.database).rebuild(actor="test", now=LATER)


async def test_what_needs_single_events_is_refused_in_words(
    books: Books, filled: list[Caller], tmp_path: Path
) -> None:
    folder, caller = tmp_path / "archive", filled[0]
    (event, *_) = await books.events()
    await archiver(books, folder).archive(KEEP)
    read = books.database.read
    with pytest.raises(PeriodArchived, match=r"settled up to 2026-09-08 12:03 UTC are archived"):
        await read(partial(usage, by=["model"], since=SEPTEMBER))
    with pytest.raises(PeriodArchived):
        await books.database.read(partial(comparisons, by=["project"]))
    assert await books.database.read(partial(comparisons, by=["project"], since=OCTOBER)) == []
    statement = await Reader(books.database).statement(caller.workspace_id, "2026-09")
    assert statement.is_archived and statement.comparisons == () and statement.used_nano_usd > 0
    (left,) = await read(partial(usage, by=[], since=OCTOBER))
    assert isinstance(left, UsageSum) and left.requests == 11
    made = Adjustments(books.database, actor="test")
    with pytest.raises(EventArchived, match="credit the workspace instead"):
        await made.refund(event.event_id, reason="broken", idempotency_key="b")
    assert await read(partial(receipts, limit=10)) == []
    found = await find(books.database, folder, event.event_id)
    assert found is not None and UsageEvent(**found.event) == event
    assert found.path.name == "usage-2026-09-001.parquet"


async def test_a_refund_that_was_made_before_is_proven_and_answered_as_before(
    books: Books, filled: list[Caller], tmp_path: Path
) -> None:
    made = Adjustments(books.database, actor="test")
    (refund,) = await made.listed()
    await archiver(books, tmp_path / "archive").archive(KEEP)
    assert refund.event_id is not None
    again = await made.refund(refund.event_id, nano_usd=7, reason="broken", idempotency_key="a")
    assert again == refund
    await assert_clean(books)
    forged = text("UPDATE archived_refunds SET charged_nano_usd = 5")
    await books.database.write(lambda c: c.execute(forged))
    (wrong,) = (await Reader(books.database).reconcile(books.spool)).wrong_adjustments
    assert wrong.adjustment_id == refund.id


async def test_an_event_of_an_archived_month_is_set_aside_and_counts_once_it_is_known_to_be_missing(
    books: Books, filled: list[Caller], tmp_path: Path
) -> None:
    folder = tmp_path / "archive"
    known = next(event for event in await books.events() if event.model_id == "model-a")
    await archiver(books, folder).archive(KEEP)
    before = await said(books, filled)
    missing = replace(known, event_id=mint_event_id(SEPTEMBER), settled_at=SEPTEMBER)
    await books.spool.append(known, missing)
    moved = await replay(books.spool, books.database)
    assert (moved.posted, moved.refused) == (0, 2)
    assert not (await Reader(books.database).reconcile(books.spool)).is_clean
    assert [one.refusal or "" for one in await books.spool.refused()] == [
        "the ledger refused the row: IntegrityError: its month is archived, and takes no more usage events"
    ] * 2
    assert await said(books, filled) == before
    await assert_clean(books)
    with pytest.raises(ArchiveRefused, match="was charged"):
        await admit(books.database, folder, known.event_id, actor="test")
    for _ in "twice":
        await admit(books.database, folder, missing.event_id, actor="test")
    assert await retry(books.spool, books.database, missing.event_id) == "in the ledger"
    assert (await retry(books.spool, books.database, known.event_id)).startswith("set aside again")
    (total,) = await books.usage(["route"])
    assert total.requests == 1 + sum(line.requests for line in before[3])
    # A replay of it is one that is known, as of any event.
    (posting,) = await books.database.write(partial(ledger_sql.post_all, events=[missing]))
    assert not posting.is_new
    await assert_clean(books)
    assert await Reader(books.database).rebuild(actor="test", now=LATER) == []
    # It can be refunded, and stays when the next month goes.
    await archiver(books, folder).archive(2)
    assert missing.event_id in {event.event_id for event in await books.events()}
    await Adjustments(books.database, actor="test").refund(
        missing.event_id, reason="late", idempotency_key="c"
    )
    await assert_clean(books)


async def test_a_server_whose_clock_shows_an_archived_month_serves_nobody(
    books: Books, filled: list[Caller], tmp_path: Path
) -> None:
    """Its usage could be charged to nobody: the ledger takes no more events of that month."""
    await archiver(books, tmp_path / "archive").archive(KEEP)
    caller, new = await books.new_caller(spend_limit_nano_usd=5000), await books.new_caller()
    assert (await hold_at(books.ledger, books, caller, LATER)).kind == "held"
    for allowance in (0, 10**6):
        ledger = Ledger(books.database, books.spool, offline_allowance_nano_usd=allowance)
        for one in (caller, new):
            with pytest.raises(ClockBehind):
                await hold_at(ledger, books, one, SEPTEMBER)
        await ledger.close()
    assert (await books.money(caller), await books.money(new)) == ((0, 1000), (0, 0))


async def hold_at(ledger: Ledger, books: Books, caller: Caller, moment: datetime) -> Hold:
    """By the clock of a server; the database's is right."""
    return await ledger.hold(
        caller,
        model_id="model-a",
        pricing_version=books.pricing_version,
        amount_nano_usd=1000,
        request_id="r",
        now=moment,
    )


async def test_a_chat_whose_compression_is_archived_stays_proven(books: Books, tmp_path: Path) -> None:
    """They began within a second, and a month ended in it."""
    chats = await Chats.of(books)
    await chats.settle(Chat(), now=SEPTEMBER)
    first, second = await books.events()
    begun = datetime(2026, 10, 1, tzinfo=UTC)
    ids = (mint_event_id(begun - timedelta(milliseconds=1)), mint_event_id(begun))
    for one, other in ((first, second), (second, first)):
        moved = [
            replace(event, event_id=own, paired_with=its)
            for event, own, its in ((one, *ids), (other, *reversed(ids)))
        ]
        await books.database.write(partial(ledger_sql.post_all, events=moved))
        ids = (mint_event_id(begun - timedelta(milliseconds=1)), mint_event_id(begun))
    await books.at(LATER)
    await assert_clean(books)
    await archiver(books, tmp_path / "archive").archive(KEEP)
    assert await books.count_events() == 2
    await assert_clean(books)


async def test_an_event_reads_the_same_in_every_database_and_in_python(books: Books) -> None:
    caller, rng = await books.new_caller(), random.Random(4)
    odd = {"request_id": "a|b\n:ü 9", "receipt": '{"é": "|"}', "offline": True, "paired_with": "0" * 32}
    rows = [
        random_event(rng, caller, books.pricing_version) | (odd if number % 2 else {}) for number in range(20)
    ]
    for row in rows:
        await books.database.write(partial(_execute, statement=usage_events.insert().values(row)))
    said = await books.database.read(partial(text_of_events, from_id="", until_id=None))
    assert said == "\n".join(line_of(event) for event in await stored(books))


async def test_a_month_is_not_archived_before_all_of_it_is_settled_and_proven(
    books: Books, filled: list[Caller], tmp_path: Path
) -> None:
    folder = tmp_path / "archive"
    (known, *_) = await books.events()
    await forge(books, "UPDATE usage_events SET prompt_tokens = 7 WHERE event_id = :id", id=known.event_id)
    await books.spool.append(replace(known, event_id=mint_event_id(SEPTEMBER)))
    with pytest.raises(ArchiveRefused, match="1 of its events wait in the spool"):
        await archiver(books, folder).archive(KEEP)
    await books.spool.remove((await books.spool.waiting())[0].event_id)
    hold = await books.hold(filled[0], 5, now=SEPTEMBER)
    await books.at(LATER)
    with pytest.raises(ArchiveRefused, match="1 of its requests still hold money"):
        await archiver(books, folder).archive(KEEP)
    await books.ledger.release(hold, now=LATER)
    with pytest.raises(ArchiveRefused, match="not all of its events are proven"):
        await archiver(books, folder).archive(KEEP)
    assert await books.count_events() == 27 and list(folder.glob("usage*")) == []
    with alone(folder), pytest.raises(ArchiveRefused, match="another pith archive"):
        await archiver(books, folder).archive(KEEP)


async def test_events_count_until_all_that_is_kept_of_them_is_there(
    books: Books, filled: list[Caller], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run has begun to keep the sums anew: half of them are not there."""
    folder, before = tmp_path / "archive", await said(books, filled)
    with monkeypatch.context() as patched:
        patched.setattr(month_sql, "add_days", lambda connection, month, days: None)
        with pytest.raises(ArchiveRefused, match="another run is at work on it"):
            await archiver(books, folder).archive(KEEP)
    assert await books.count_events() == 27 and await said(books, filled) == before
    await archiver(books, folder).archive(KEEP)
    assert await books.count_events() < 27 and await said(books, filled) == before


async def test_an_event_that_was_changed_since_it_was_proven_is_found_out(
    books: Books, filled: list[Caller], tmp_path: Path
) -> None:
    assert (await Reader(books.database).reconcile(books.spool)).is_clean
    (known, *_) = await books.events()
    await forge(books, "UPDATE usage_events SET request_id = 'x' WHERE event_id = :id", id=known.event_id)
    with pytest.raises(ArchiveDamaged, match="are not those that were proven"):
        await archiver(books, tmp_path / "archive").archive(KEEP)
    assert await books.count_events() == 27


@pytest.mark.parametrize("harm", ["damaged", "gone"])
async def test_nothing_is_deleted_while_a_file_is_not_what_was_proven(
    books: Books, filled: list[Caller], tmp_path: Path, harm: str
) -> None:
    folder = tmp_path / "archive"

    class Stop(Exception):
        pass

    def tell(step: str) -> None:
        if step.endswith("archived"):
            raise Stop

    with pytest.raises(Stop):
        await AfterTheLog(books.database, books.spool, folder, actor="test", tell=tell).archive(KEEP)
    events, path = await books.count_events(), folder / "usage-2026-09-001.parquet"
    whole = path.read_bytes()
    path.unlink() if harm == "gone" else path.write_bytes(whole[:-9] + b"x" + whole[-8:])
    with pytest.raises(ArchiveDamaged):
        await archiver(books, folder).archive(KEEP)
    assert await books.count_events() == events
    with pytest.raises(RowRefused, match="append-only"):
        await books.database.write(
            lambda c: c.execute(text("DELETE FROM usage_events WHERE event_id > '019b'"))
        )
    await assert_clean(books)
    path.write_bytes(whole)
    assert await archiver(books, folder).archive(KEEP) == ["2026-09"]
    await assert_clean(books)


async def test_a_file_that_lacks_an_event_is_found_out(
    books: Books, filled: list[Caller], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from billing.parquet import RowWriter

    add = RowWriter.add
    monkeypatch.setattr(RowWriter, "add", lambda self, events: add(self, events[1:]))
    with pytest.raises(ArchiveDamaged, match="are not those that were proven"):
        await archiver(books, tmp_path / "archive").archive(KEEP)
    assert await books.count_events() == 27
    await assert_clean(books)


async def test_a_month_stays_while_its_events_wait_for_the_log(
    books: Books, filled: list[Caller], tmp_path: Path
) -> None:
    waiting = Archiver(books.database, books.spool, tmp_path / "archive", actor="test")
    with pytest.raises(ArchiveRefused, match="10 of its events wait for the transparency log"):
        await waiting.archive(KEEP)
    assert await books.count_events() == 27
    assert await archiver(books, tmp_path / "archive").archive(KEEP) == ["2026-09"]


async def test_an_event_that_comes_before_the_seal_and_is_no_leaf_yet_is_not_deleted(
    books: Books, filled: list[Caller], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def before_the_seal(self: Archiver, month: Month) -> None:
        await ready(self, month)
        if not late:
            late.append(month.month)
            await use(books, filled[0], SEPTEMBER, 1000)
            await books.at(LATER)

    late, ready = list[str](), Archiver._require_ready
    monkeypatch.setattr(Archiver, "_require_ready", before_the_seal)
    with pytest.raises(ArchiveRefused, match="1 of its events wait for the transparency log"):
        await archiver(books, tmp_path / "archive").archive(KEEP)
    assert await books.count_events() == 28
    assert await archiver(books, tmp_path / "archive").archive(KEEP) == ["2026-09"]
    await require_leaves(books, tmp_path / "archive", 11)


async def test_an_archived_event_is_proven_by_its_row_in_the_file(
    books: Books, filled: list[Caller], tmp_path: Path
) -> None:
    folder = tmp_path / "archive"
    await archiver(books, folder).archive(2)
    await require_leaves(books, folder, 19)


async def change_an_event(books: Books) -> None:
    """As somebody does who may do anything in the database."""

    def change(connection: Connection) -> None:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SET LOCAL session_replication_role = replica"))
        else:
            connection.execute(text("DROP TRIGGER usage_events_no_update"))
        # A pair whose halves differ would not be proven in the first place.
        first = "SELECT min(event_id) FROM usage_events WHERE paired_with IS NULL AND compression IS NULL"
        connection.execute(text(f"UPDATE usage_events SET request_id = 'another' WHERE event_id = ({first})"))

    await books.database.write(change)


async def require_leaves(books: Books, folder: Path, number: int) -> None:
    rows = rows_of(folder)
    assert len(rows) == number
    assert await books.database.read(partial(places.missing, rows=rows)) == []
    await assert_clean(books)


async def test_a_row_that_was_changed_after_it_became_a_leaf_is_not_deleted(
    books: Books, filled: list[Caller], tmp_path: Path
) -> None:
    await sequencer(books.database).once()
    await change_an_event(books)
    with pytest.raises(ArchiveRefused, match="is not in the transparency log as it is in the ledger"):
        await archiver(books, tmp_path / "archive").archive(KEEP)
    assert await books.count_events() == 27


# Sealed, each file, read again, its manifest, what is kept, archived; and two pieces of what is deleted.
KILLED_AFTER = (1, 1, 2, 3, 4, 5, 6, 1, 1)


async def test_a_kill_after_any_step_loses_and_doubles_nothing(
    books: Books, filled: list[Caller], tmp_path: Path
) -> None:
    """The same month, killed after the first step, gone on with and killed after the next, and so on."""
    folder, reader = tmp_path / "archive", Reader(books.database)
    before, events = await said(books, filled), await stored(books)
    usage_before = await books.usage(["day", "key"])
    await sequencer(books.database).once()
    with archiving(books.url, folder, books.spool_path, now=LATER.timestamp()) as run:
        for stop in (*KILLED_AFTER, 0):
            ended = await asyncio.to_thread(run, stop, 0)
            assert ended == (-signal.SIGKILL if stop else 0)
            assert await books.usage(["day", "key"]) == usage_before
            assert (await reader.reconcile(books.spool, full=True)).is_clean
    assert await said(books, filled) == before and await books.differences() == []
    assert rows_of(folder) + await stored(books) == events
    assert list(folder.glob("*.part")) == []


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
async def test_on_postgresql_a_month_with_a_table_of_its_own_goes_at_once(
    books: Books, tmp_path: Path
) -> None:
    moment, steps, folder = datetime(2028, 1, 31, 12, tzinfo=UTC), list[str](), tmp_path / "archive"
    await books.at(moment)
    await make_months(books.database)
    caller = await books.new_caller()
    for day in range(3):
        await use(books, caller, moment + timedelta(days=day))
    (known, *_) = await books.events()
    await books.at(datetime(2028, 5, 5, tzinfo=UTC))
    before = await said(books, [caller])
    assert await archiver(books, folder, steps).archive(KEEP) == ["2028-01"]
    assert "2028-01: table usage_events_2028_01 dropped" in steps and await books.count_events() == 2
    assert await said(books, [caller]) == before
    await assert_clean(books)
    missing = replace(known, event_id=mint_event_id(moment))
    with pytest.raises(RowRefused, match="its month is archived"):
        await books.database.write(partial(ledger_sql.post_all, events=[missing]))
    await admit(books.database, folder, missing.event_id, actor="test")
    await books.database.write(partial(ledger_sql.post_all, events=[missing]))
    assert await archiver(books, folder).archive(2) == ["2028-02"]
    assert [event.event_id for event in await books.events()] == [missing.event_id]
    await assert_clean(books)


def test_the_policy_keeps_whole_months() -> None:
    moment = datetime(2027, 1, 31, 23, 59, tzinfo=UTC)
    assert [f"{first_kept(moment, keep):%Y-%m-%d}" for keep in (1, 12, 13)] == [
        "2026-12-01",
        "2026-01-01",
        "2025-12-01",
    ]


async def test_files_of_other_events_are_not_written_over(
    books: Books, filled: list[Caller], tmp_path: Path
) -> None:
    """Of another ledger with the same folder, or of this one before an old backup was put in its place."""
    folder = tmp_path / "archive"
    await archiver(books, folder).archive(KEEP)
    manifest = json.loads((folder / "usage-2026-09.json").read_text())
    other = folder / "usage-2026-10.json"
    other.write_text(json.dumps({**manifest, "month": "2026-10"}))
    with pytest.raises(ArchiveRefused, match=r"usage-2026-10\.json: is of other events"):
        await archiver(books, folder).archive(2)
    assert await planned(books.database, 2) == [Planned("2026-10", 9)]
    assert not list(folder.glob("usage-2026-10-*"))
    other.unlink()
    assert await archiver(books, folder).archive(2) == ["2026-10"]
    await assert_clean(books)


async def test_a_run_that_was_overtaken_by_another_leaves_its_files_alone(
    books: Books, filled: list[Caller], tmp_path: Path
) -> None:
    """On another machine, on a shared disk whose locks do not reach that far: it would find fewer and fewer events."""
    folder, seen = tmp_path / "archive", list[Any]()

    class Slow(MonthWriter):
        async def write(self, month: Month, sums: Sequence[Sum]) -> list[EventsFile]:
            seen.append((month, sums))
            return await super().write(month, sums)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("billing.archive.archiver.MonthWriter", Slow)
        await archiver(books, folder).archive(KEEP)
    files = {path.name: path.read_bytes() for path in folder.glob("usage*")}
    ((month, sums),) = seen
    with pytest.raises(ArchiveRefused, match="another run has gone on with it"):
        await MonthWriter(books.database, folder, lambda step: None).write(month, sums)
    assert {path.name: path.read_bytes() for path in folder.glob("usage*") if path.suffix != ".part"} == files


async def test_a_month_that_is_archived_in_whole_or_in_part_is_proven_from_the_files_as_it_was_before(
    books: Books, filled: list[Caller], tmp_path: Path
) -> None:
    """Of requests that began in October some were charged in November, and their events went with October."""
    folder, made_at = tmp_path / "archive", books.clock.moment
    whole, split = filled

    async def proof_of(caller: Caller, month: str, project_id: str | None, **how: Any) -> Any:
        make = partial(
            statement_proof,
            workspace=caller.workspace_id,
            month=month,
            made_at=made_at,
            project_id=project_id,
            **how,
        )
        return json.loads("".join((await books.database.read(make)).pieces(SIGNER)))

    await sequencer(books.database).once()
    asked = [
        (caller, month, project_id)
        for caller in filled
        for month in ("2026-09", "2026-10", "2026-11")
        for project_id in (None, caller.project_id)
    ]
    before = [await proof_of(*one) for one in asked]
    await archiver(books, folder).archive(2)
    assert await proof_of(whole, "2026-11", None) in before
    refused = 0
    for (caller, month, project_id), file in zip(asked, before, strict=True):
        archived = await archived_events(books.database, folder, caller.workspace_id, month)
        assert await proof_of(caller, month, project_id, archived=archived) == file
        # Its prices are made up.
        assert [one for one in verify.Proof(file).findings if one[0] != "price"] == []
        if archived:
            refused += 1
            with pytest.raises(
                NoProof, match=f"some of the events of {month} are archived: ask the operator"
            ):
                await proof_of(caller, month, project_id)
    assert refused > 2 and await archived_events(books.database, folder, split.workspace_id, "2026-11")
    await books.database.write(
        lambda c: c.execute(text("UPDATE archived_months SET in_log = false")) and None
    )
    with pytest.raises(NoProof, match="archived before there was a log"):
        await archived_events(books.database, folder, split.workspace_id, "2026-11")


async def test_a_request_of_which_one_event_is_archived_is_not_proven_by_the_other(
    books: Books, filled: list[Caller], tmp_path: Path
) -> None:
    caller = filled[0]
    await archiver(books, tmp_path / "archive").archive(2)
    row = event_row(caller, NOW, paired_with=mint_event_id(OCTOBER), cost_nano_usd=0)
    await books.database.write(lambda c: c.execute(insert(usage_events), row) and None)
    await books.database.write(refill)
    make = partial(statement_proof, workspace=caller.workspace_id, month="2026-11", made_at=LATER)
    with pytest.raises(NoProof, match="an event is archived"):
        await books.database.read(make)
