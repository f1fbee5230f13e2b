"""A witness by the specification: it cosigns one line of checkpoints, and nothing that it did not sign is shown."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from aiohttp import web
from sqlalchemy import Connection, text

from billing.books.statement_proof import statement_proof
from billing.caller import Caller
from billing.store.database import LongWork
from billing.transparency import cosigned, log_sql, verify
from billing.transparency.cosigned import is_cosigned, read_cosigned
from billing.transparency.tree import EMPTY_ROOT
from billing.transparency.witness import Witness, WitnessRefused
from tests.billing.conftest import NOW, Books
from tests.billing.transparency.logged import SIGNER, add_events, sequencer
from tests.billing.transparency.proof_files import Witness as Cosigner
from tests.billing.transparency.witnessing import SpecWitness, witnessing


@pytest.fixture
async def spec() -> AsyncIterator[SpecWitness]:
    async with witnessing(SIGNER.verifier) as found:
        yield found


def client(books: Books, spec: SpecWitness, **how: float) -> Witness:
    return Witness(books.database, spec.key.verifier, spec.url, **how)


async def grow(books: Books, caller: Caller, number: int) -> None:
    await add_events(books, caller, number)
    await sequencer(books.database).once()


async def note(books: Books) -> str:
    return (await books.database.read(log_sql.head)).note


async def test_each_checkpoint_is_cosigned_once_and_what_is_shown_has_it(
    books: Books, spec: SpecWitness
) -> None:
    caller, asking = await books.new_caller(), client(books, spec)
    await asking.once()
    assert spec.requests == []
    for number in (3, 300, 1):
        await grow(books, caller, number)
        assert not is_cosigned(await note(books), spec.key.verifier)
        for _ in range(2):
            await asking.once()
        assert is_cosigned(await note(books), spec.key.verifier)
        assert "other.example" not in await note(books)
    assert spec.statuses == [200, 200, 200]
    assert spec.requests[0].startswith(f"old 0\n\n{SIGNER.origin}\n3\n")
    assert spec.requests[1].startswith("old 3\n") and spec.size == 304
    # The log goes on from a cosigned checkpoint as from any.
    await sequencer(books.database).once()
    assert is_cosigned(await note(books), spec.key.verifier)


async def test_a_server_that_does_not_know_what_was_cosigned_is_told(books: Books, spec: SpecWitness) -> None:
    caller = await books.new_caller()
    await grow(books, caller, 5)
    await client(books, spec).once()
    await grow(books, caller, 5)
    await client(books, spec).once()
    assert spec.statuses == [200, 409, 200]
    assert is_cosigned(await note(books), spec.key.verifier)


async def test_a_log_that_was_rewritten_is_not_cosigned(books: Books, spec: SpecWitness) -> None:
    caller, asking = await books.new_caller(), client(books, spec)
    await grow(books, caller, 5)
    await asking.once()
    await add_events(books, caller, 1, at=NOW - timedelta(days=1))
    await rewrite(books)
    for again in (asking, client(books, spec)):
        await grow(books, caller, 5)
        with pytest.raises(WitnessRefused, match="422"):
            await again.once()
    assert not is_cosigned(await note(books), spec.key.verifier)


async def rewrite(books: Books) -> None:
    """The operator begins the log anew, under the same key, with what is in the ledger by then."""

    def work(connection: Connection) -> None:
        for table in ("log_bundles", "log_tiles", "log_minutes", "log_pending"):
            connection.execute(text(f"DELETE FROM {table}"))
        connection.execute(text("INSERT INTO log_pending SELECT event_id FROM usage_events"))
        connection.execute(
            text("UPDATE log_head SET size = 0, root = :root, note = ''"), {"root": EMPTY_ROOT}
        )

    await books.database.write(work)


async def test_a_log_that_was_restored_from_before_is_told_so(books: Books, spec: SpecWitness) -> None:
    await grow(books, await books.new_caller(), 5)
    spec.size = 9
    with pytest.raises(WitnessRefused, match="has seen 9 leaves of this log, which has 5"):
        await client(books, spec).once()


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (200, "", "text/plain"),
        (200, "— witness.example AAAA\n", "text/plain"),
        (200, "x" * 20_000, "text/plain"),
        (409, "", "text/x.tlog.size"),
        (409, "-1\n", "text/x.tlog.size"),
        (409, "9" * 40, "text/x.tlog.size"),
        (409, "3\n", "text/plain"),
        (404, "", "text/plain"),
        (302, "", "text/plain"),
        (500, "\x00", "text/plain"),
    ],
)  # fmt: skip
async def test_no_other_answer_is_taken_for_a_cosignature(
    books: Books, spec: SpecWitness, status: int, body: str, kind: str
) -> None:
    await grow(books, await books.new_caller(), 5)
    before = await note(books)
    headers = {"Location": spec.url} if status == 302 else {}
    spec.answers = web.Response(status=status, text=body, content_type=kind, headers=headers)
    with pytest.raises(WitnessRefused):
        await client(books, spec).once()
    assert await note(books) == before


async def test_a_cosignature_of_another_key_or_checkpoint_is_not_shown(
    books: Books, spec: SpecWitness
) -> None:
    await grow(books, await books.new_caller(), 5)
    true = await note(books)
    for by, of in ((Cosigner(), true), (spec.key, SIGNER.checkpoint(5, bytes(32)))):
        spec.answers = web.Response(text=by.cosigned(of, NOW).removeprefix(of))
        with pytest.raises(WitnessRefused, match="without its signature"):
            await client(books, spec).once()
    assert await note(books) == true


async def test_a_witness_that_never_answers_holds_nothing_up(books: Books, spec: SpecWitness) -> None:
    caller = await books.new_caller()
    await grow(books, caller, 5)
    spec.hangs = asyncio.Event()
    with pytest.raises(WitnessRefused, match="no answer"):
        await client(books, spec, timeout_s=0.2).once()
    asking = asyncio.create_task(client(books, spec, timeout_s=60).once())
    for _ in range(2):
        await asyncio.wait_for(spec.arrived.get(), 60)
    await grow(books, caller, 5)
    spec.hangs.set()
    # What it cosigned is an older checkpoint by now.
    await asking
    assert f"{SIGNER.origin}\n10\n" in await note(books)
    await client(books, spec).once()
    assert is_cosigned(await note(books), spec.key.verifier)


async def test_a_proof_waits_for_the_cosignature_and_not_for_ever(
    books: Books, spec: SpecWitness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await grow(books, caller := await books.new_caller(), 5)
    monkeypatch.setattr(cosigned, "LOOK_EVERY_S", 0.01)
    read, key = books.database.read, spec.key.verifier
    make = partial(
        statement_proof, workspace=caller.workspace_id, month=f"{NOW:%Y-%m}", made_at=NOW + timedelta(hours=1)
    )
    waiting = asyncio.create_task(read_cosigned(read, make, key))
    await client(books, spec).once()
    assert is_cosigned((await waiting).checkpoint, key)
    assert await read_cosigned(read, make, None, patience_s=60) == await waiting
    other = await read_cosigned(read, make, Cosigner().verifier, patience_s=0.05)
    assert other == await waiting


async def test_a_log_that_grows_while_a_proof_waits_is_proven_as_it_was_cosigned(
    books: Books, spec: SpecWitness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is checked and what is read are of one snapshot: another checkpoint may come between two reads."""
    await grow(books, caller := await books.new_caller(), 5)
    monkeypatch.setattr(cosigned, "LOOK_EVERY_S", 0.0)
    looks = 0

    async def read(work: LongWork[Any]) -> Any:
        nonlocal looks
        looks += 1
        if looks == 3:
            await client(books, spec).once()
        found = await books.database.read(work)
        if looks >= 3:
            await grow(books, caller, 1)
        return found

    make = partial(statement_proof, workspace=caller.workspace_id, month=f"{NOW:%Y-%m}", made_at=NOW)
    found = await read_cosigned(read, make, spec.key.verifier)
    assert looks == 3 and is_cosigned(found.checkpoint, spec.key.verifier)


async def test_a_fork_that_is_shown_to_two_customers_is_caught_by_either_with_the_witness_key(
    books: Books, spec: SpecWitness
) -> None:
    """One line is cosigned; who is shown the other one has no cosignature for it, or one of another checkpoint."""
    caller, asking = await books.new_caller(), client(books, spec)
    await grow(books, caller, 5)
    await asking.once()
    make = partial(
        statement_proof, workspace=caller.workspace_id, month=f"{NOW:%Y-%m}", made_at=NOW + timedelta(hours=1)
    )

    async def file() -> dict[str, object]:
        return json.loads("".join((await books.database.read(make)).pieces(SIGNER)))  # type: ignore[no-any-return]

    def findings(given: dict[str, object]) -> set[str]:
        proof = verify.Proof(given)
        key = verify.key_of(str(spec.key.verifier), verify.COSIGNATURE)
        proof.attempt(verify.opened, given["checkpoint"], key, "witness")
        return {kind for kind, _ in proof.findings} - {"price"}

    one = await file()
    assert findings(one) == set()
    # Something else happened to somebody else before it.
    await add_events(books, await books.new_caller(), 1, at=NOW - timedelta(days=1))
    await rewrite(books)
    await sequencer(books.database).once()
    with pytest.raises(WitnessRefused):
        await asking.once()
    other = await file()
    line = str(one["checkpoint"]).splitlines()[-1]
    stolen = {**other, "checkpoint": f"{other['checkpoint']}{line}\n"}
    assert findings(other) == findings(stolen) == {"witness"}
