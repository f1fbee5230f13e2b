"""A month's proof, built from a ledger that real requests filled, and checked by the verifier as a customer runs it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Connection, event, insert

from billing.adjustments.adjustments import Adjustments
from billing.books.statement_proof import Bounds, StatementProof, statement_proof
from billing.caller import Caller
from billing.errors import NoProof
from billing.price import Cost
from billing.rollups.due_sums import refill
from billing.store.schema import usage_events
from billing.transparency import log_sql, verify
from billing.transparency.leaves import digest
from billing.usage import Hold, UsageFigures, Used
from tests.billing.chats import forge
from tests.billing.conftest import NOW, Books, event_row
from tests.billing.transparency.logged import SIGNER, add_events, sequencer

MONTH = f"{NOW:%Y-%m}"
FIGURES = UsageFigures(prompt_tokens=1000, completion_tokens=200, cached_tokens=30, stream=False)
COST = Cost(270_000, 270_000, False)


async def used(books: Books, caller: Caller, number: int = 3) -> list[Hold]:
    holds = []
    for _ in range(number):
        hold = await books.ledger.hold(
            caller, model_id="model-a", pricing_version=books.pricing_version, amount_nano_usd=10**6,
            request_id="r", now=NOW,
        )  # fmt: skip
        await books.ledger.settle(hold, figures=FIGURES, cost=COST, outcome="completed", now=NOW)
        holds.append(hold)
    return holds


async def proof(books: Books, caller: Caller, **how: Any) -> dict[str, Any]:
    at = NOW + timedelta(minutes=1)
    make = partial(statement_proof, workspace=caller.workspace_id, month=MONTH, made_at=at, **how)
    return json.loads("".join((await books.database.read(make)).pieces(SIGNER)))


def findings(file: dict[str, Any]) -> list[tuple[str, str]]:
    return verify.Proof(file, str(SIGNER.verifier)).findings


async def test_a_month_of_two_workspaces_is_proven_to_each(books: Books) -> None:
    callers = [await books.new_caller() for _ in range(2)]
    for caller in (*callers, *callers):
        await used(books, caller)
    await Adjustments(books.database, actor="a").credit(
        callers[0].workspace_id, nano_usd=5, reason="an outage", idempotency_key="k"
    )
    await sequencer(books.database).once()
    for caller, adjusted in zip(callers, (-5, 0), strict=True):
        file = await proof(books, caller)
        assert findings(file) == []
        assert len(file["leaves"]) == 6 + (adjusted < 0) and file["pending"] == []
        assert file["totals"]["adjusted_nano_usd"] == adjusted
        assert [line["charged_nano_usd"] for line in file["totals"]["usage"]] == [6 * COST.nano_usd]


async def test_what_is_not_logged_yet_is_promised(books: Books) -> None:
    caller = await books.new_caller()
    await used(books, caller)
    await sequencer(books.database).once()
    await used(books, caller, 2)
    file = await proof(books, caller)
    assert (len(file["leaves"]), len(file["pending"])) == (3, 2)
    assert findings(file) == []
    await sequencer(books.database).once()
    later = await proof(books, caller, from_size=3)
    assert (len(later["leaves"]), later["pending"]) == (5, [])
    found = verify.Proof(later)
    found.check_history(json.dumps(file), None)
    assert found.findings == []


async def test_one_row_that_is_changed_in_the_ledger_is_named(books: Books) -> None:
    caller = await books.new_caller()
    hold, *_ = await used(books, caller)
    await sequencer(books.database).once()
    await forge(books, "UPDATE usage_events SET prompt_tokens = 1100 WHERE event_id = :id", id=hold.event_id)
    kinds = dict(findings(await proof(books, caller)))
    assert hold.event_id in kinds["omitted"] and "sums" in kinds


async def test_a_row_that_is_deleted_is_missed_by_the_sums(books: Books) -> None:
    caller = await books.new_caller()
    hold, *_ = await used(books, caller)
    await sequencer(books.database).once()
    await forge(books, "DELETE FROM usage_events WHERE event_id = :id", id=hold.event_id)
    assert {kind for kind, _ in findings(await proof(books, caller))} == {"sums"}


async def test_a_project_sees_its_own_events_alone(books: Books) -> None:
    caller = await books.new_caller()
    other = await books.accounts.create_project(caller.workspace_id, "other", now=NOW)
    _, token = await books.accounts.keys.create(other.id, "key", now=NOW)
    await used(books, caller)
    await used(books, await books.accounts.authenticate(token, now=NOW), 1)
    credit = Adjustments(books.database, actor="a").credit
    await credit(caller.workspace_id, nano_usd=5, reason="an outage", idempotency_key="k")
    await sequencer(books.database).once()
    file = await proof(books, caller, project_id=other.id)
    assert findings(file) == [] and len(file["leaves"]) == 1
    assert len((await proof(books, caller))["leaves"]) == 5


async def test_both_events_of_a_request_are_in_the_file_although_the_month_turned_between(
    books: Books,
) -> None:
    caller = await books.new_caller()
    figures = {
        "subtotal_nano_usd": 150_000,
        "cost_nano_usd": 150_000,
        "prompt_tokens": 1000,
        "completion_tokens": 0,
    }
    rows = [
        event_row(caller, NOW, event_id=id_, paired_with=other, month=month, **figures)
        for id_, other, month in (("a", "b", MONTH), ("b", "a", "2026-10"))
    ]
    await books.database.write(lambda c: c.execute(insert(usage_events), rows) and None)
    await sequencer(books.database).once()
    file = await proof(books, caller)
    assert len(file["leaves"]) == 2 and findings(file) == []


async def test_a_proof_of_more_than_may_be_read_is_refused(books: Books) -> None:
    caller = await books.new_caller()
    await used(books, caller)
    with pytest.raises(NoProof, match="checkpoint"):
        await proof(books, caller)
    await sequencer(books.database).once()
    for bounds in (Bounds(leaves=2), Bounds(bundles=0)):
        with pytest.raises(NoProof, match="ask the operator"):
            await proof(books, caller, bounds=bounds)
    assert findings(await proof(books, caller, bounds=Bounds(leaves=3, bundles=1))) == []


@pytest.mark.parametrize("size", [0, -1, 4])
async def test_consistency_is_asked_for_from_a_size_that_the_log_had(books: Books, size: int) -> None:
    caller = await books.new_caller()
    await used(books, caller)
    await sequencer(books.database).once()
    with pytest.raises(ValueError, match="from_size"):
        await proof(books, caller, from_size=size)


async def test_a_part_of_a_price_and_what_is_written_off_are_proven(books: Books) -> None:
    caller = await books.new_caller(spend_limit_nano_usd=300_000)
    hold = await books.hold(caller, 100_000)
    figures = replace(FIGURES, prompt_tokens=10_000)
    used = Used(hold, figures, Cost(810_000, 810_000, False), price_ppm=500_000)
    await books.ledger.settle_all([used], outcome="completed", now=NOW)
    await sequencer(books.database).once()
    file = await proof(books, caller)
    assert findings(file) == []
    assert file["totals"]["usage"][0]["written_off_nano_usd"] == 510_000


async def test_a_project_is_proven_without_reading_the_adjustments_of_others(books: Books) -> None:
    caller = await books.new_caller()
    hold, *_ = await used(books, caller, 1)
    adjusting = Adjustments(books.database, actor="a")
    await adjusting.refund(hold.event_id, nano_usd=7, reason="broken", idempotency_key="r")
    for number in range(3):
        await adjusting.credit(
            caller.workspace_id, nano_usd=5, reason="an outage", idempotency_key=f"{number}"
        )
    await sequencer(books.database).once()

    def made(connection: Connection) -> tuple[StatementProof, list[int]]:
        read: list[int] = []

        @event.listens_for(connection, "after_cursor_execute")
        def count(*given: Any) -> None:
            if " FROM adjustments" in given[2].replace("\n", " "):
                read.append("sum(" in given[2])

        how: dict[str, Any] = {
            "workspace": caller.workspace_id,
            "project_id": caller.project_id,
            "month": MONTH,
        }
        return statement_proof(connection, made_at=NOW + timedelta(minutes=1), **how), read

    found, read = await books.database.read(made)
    assert found.totals["adjusted_nano_usd"] == -7 and len(found.leaves) == 2
    # The sum, and the one row.
    assert sorted(read) == [False, True]


async def test_events_of_long_after_the_month_are_not_looked_through_unless_sums_say_so(books: Books) -> None:
    caller = await books.new_caller()
    await used(books, caller, 2)
    await sequencer(books.database).once()

    def bounds(connection: Connection) -> list[bool]:
        found: list[bool] = []

        @event.listens_for(connection, "after_cursor_execute")
        def look(*given: Any) -> None:
            if "FROM usage_events" in given[2] and "month !=" not in given[2]:
                found.append(" BETWEEN " in given[2])

        statement_proof(connection, caller.workspace_id, MONTH, made_at=NOW)
        return found

    assert await books.database.read(bounds) == [True]
    # Charged to the month, whatever its clock says.
    late = NOW + timedelta(days=40)
    row = event_row(caller, late, month=MONTH, cost_nano_usd=0)
    await books.database.write(lambda c: c.execute(insert(usage_events), row) and None)
    await books.database.write(refill)
    assert await books.database.read(bounds) == [True, False]
    assert len((await proof(books, caller))["pending"]) == 1


async def test_usage_that_was_settled_in_the_month_and_charged_later_is_promised_and_in_no_sum(
    books: Books,
) -> None:
    caller = await books.new_caller()
    await used(books, caller, 2)
    # As one that waited in the spool while the month turned.
    amount = {
        "subtotal_nano_usd": 270_000,
        "cost_nano_usd": 270_000,
        "prompt_tokens": 1000,
        "completion_tokens": 200,
    }
    row = event_row(caller, NOW, month="2026-12", **amount | {"cached_tokens": 30})
    await books.database.write(lambda c: c.execute(insert(usage_events), row) and None)
    await sequencer(books.database).once()
    for how in ({}, {"project_id": caller.project_id}):
        file = await proof(books, caller, **how)
        assert file["totals"]["usage"][0]["requests"] == 2 and len(file["leaves"]) == 3
        assert findings(file) == []
    received = verify.Proof(file)
    # Evidence is made when the month is over.
    received.made_at = received.until
    (one,) = (leaf for leaf in file["leaves"] if row["event_id"] in leaf["record"])
    received.check_receipt(one["record"], SIGNER.receipt(digest(one["record"])))
    assert received.findings == [] == received.notes
    with pytest.raises(NoProof, match="ask the operator"):
        await proof(books, caller, bounds=Bounds(leaves=2))


async def test_each_bundle_is_read_once_and_others_run_between_two(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On PostgreSQL the event loop computes what SQLite's threads do."""
    caller, other = [await books.new_caller() for _ in range(2)]
    for one, number in ((caller, 500), (other, 200)):
        await add_events(books, one, number)
    await sequencer(books.database).once()
    turns, hashed, reads = 0, list[int](), list[str]()
    hashes_of_entries = log_sql.hashes_of_entries

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def counted(entries: bytes) -> bytes:
        hashed.append(turns)
        return hashes_of_entries(entries)

    def made(connection: Connection) -> StatementProof:
        @event.listens_for(connection, "after_cursor_execute")
        def look(*given: Any) -> None:
            if "log_bundles.entries" in given[2]:
                reads.append(given[2])

        return statement_proof(connection, caller.workspace_id, MONTH, made_at=NOW, from_size=300)

    monkeypatch.setattr(log_sql, "hashes_of_entries", counted)
    task = asyncio.create_task(others())
    found = await books.database.read(made)
    task.cancel()
    assert len(found.leaves) == 500 and found.missing == 0
    # By the minutes of the ids, and none for a node.
    assert len(reads) == 1 and "log_minutes" in reads[0]
    assert len(hashed) == 3
    if books.url.startswith("postgresql"):
        assert len(set(hashed)) == 3
