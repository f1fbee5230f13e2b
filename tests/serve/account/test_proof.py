"""`GET /v1/usage/proof`, as a customer meets it: a file that the verifier finds nothing wrong in, and bounds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Connection

from billing.errors import LedgerUnavailable
from billing.store.database import LongWork, open_database
from billing.store.migration import newest_revision
from billing.transparency import verify
from billing.transparency.notes import Verifier
from billing.transparency.sequencer import Sequencer
from serve.account import proof
from serve.money.ledger_setup import log_signer
from tests.billing.transparency.proof_files import Witness as Cosigner
from tests.serve.served import Client, Served

pytestmark = pytest.mark.asyncio(loop_scope="module")
PROGRAM = Path(verify.__file__).read_bytes()


def month() -> str:
    return f"{datetime.now(UTC):%Y-%m}"


async def sequence(served: Served) -> None:
    signer = log_signer(served.settings)
    revision = newest_revision()
    await Sequencer(served.database, signer, revision=revision, clock=lambda: datetime.now(UTC)).once()


async def chatted(served: Served, key: str | None = None) -> None:
    assert (await served.chat(key=key).run()).status == 200
    await served.events()


async def asked(served: Served, query: str = "", key: str | None = None) -> Client:
    return await served.get(f"/v1/usage/proof?{query or f'month={month()}'}", key=key).run()


async def test_a_key_proves_the_month_of_its_own_project(served: Served) -> None:
    stranger = await served.new_key()
    for key in (served.key, served.key, stranger):
        await chatted(served, key)
    await sequence(served)
    size = (await asked(served)).json()["checkpoint"].split("\n")[1]
    await chatted(served)
    reply = await asked(served, f"month={month()}&from_size={size}")
    assert reply.status == 200
    file = reply.json()
    found = verify.Proof(file, str(log_signer(served.settings).verifier))
    assert found.findings == []
    assert (len(file["leaves"]), len(file["pending"])) == (2, 1)
    assert [one["from"] for one in file["consistency"]] == [int(size)]
    of_other = (await asked(served, key=stranger)).json()
    assert len(of_other["leaves"]) == 1 and of_other["project"] != file["project"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("", "month"),
        ("month=2026-13", "month"),
        ("month=x", "month"),
        ("month={}&from_size=0", "from_size"),
        ("month={}&from_size=x", "from_size"),
        ("month={}&from_size=99999999", "from_size"),
    ],
)
async def test_what_cannot_be_asked_is_named(served: Served, query: str, field: str) -> None:
    await chatted(served)
    await sequence(served)
    reply = await asked(served, query.format(month()) or "a=b")
    assert reply.status == 422 and reply.json()["detail"][0]["loc"] == ["query", field]


async def test_a_month_that_is_too_large_is_the_operators_to_prove(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await chatted(served)
    await sequence(served)
    assert (proof.MOST.leaves, proof.MOST.bundles) == (20_000, 3000)
    monkeypatch.setattr(proof, "MOST", proof.Bounds(leaves=0))
    reply = await asked(served)
    assert (reply.status, reply.json()["error"]["code"]) == (409, "proof_unavailable")
    assert "ask the operator" in reply.json()["detail"]


async def test_a_key_is_needed(served: Served) -> None:
    assert (await Client(served.api, f"/v1/usage/proof?month={month()}").run()).status == 401


async def test_few_proofs_are_made_at_once_and_few_wait() -> None:
    prover: Any = proof.Prover(None, None, None, None)  # type: ignore[arg-type]
    gate, entered = asyncio.Event(), 0

    async def one() -> None:
        nonlocal entered
        async with prover.room():
            entered += 1
            await gate.wait()

    tasks = [asyncio.create_task(one()) for _ in range(proof.AT_ONCE + proof.WAITING)]
    for _ in range(10):
        await asyncio.sleep(0)
    assert entered == proof.AT_ONCE
    with pytest.raises(proof.RateLimited):
        await one()
    gate.set()
    await asyncio.gather(*tasks)
    assert entered == len(tasks)
    await one()


async def test_the_program_that_checks_is_there_for_everybody(served: Served) -> None:
    reply = await Client(served.api, "/log/verify.py").run()
    assert (reply.status, reply.body) == (200, PROGRAM)


class Stalled:
    """A database whose reads have begun, and end when they are let go."""

    def __init__(self) -> None:
        self.begun, self.most, self.gate = 0, 0, asyncio.Event()
        self.error: Exception | None = None

    async def read(self, work: object) -> Any:
        self.begun += 1
        self.most = max(self.most, self.begun)
        try:
            await self.gate.wait()
        finally:
            self.begun -= 1
        if self.error:
            raise self.error
        return SimpleNamespace(checkpoint="", pieces=lambda _: iter(["a"]))


def stalled_prover(
    witness: Verifier | None = None,
) -> tuple[Stalled, Callable[[], Coroutine[Any, Any, list[str]]]]:
    database = Stalled()
    prover = proof.Prover(database, None, witness, lambda: datetime.now(UTC))  # type: ignore[arg-type]
    caller: Any = SimpleNamespace(workspace_id="w", project_id="p")

    async def one() -> list[str]:
        async with prover.room():
            return list(await prover.pieces(caller, proof.AskedProof("2026-11", None)))

    return database, one


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_who_leaves_makes_no_room_before_what_was_begun_is_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    database, one = stalled_prover()
    for _ in range(4):
        leaving = asyncio.create_task(one())
        await turns()
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
    assert (database.begun, database.most) == (1, 1)
    database.error = LedgerUnavailable("it went away")
    database.gate.set()
    await turns()
    database.error = None
    assert await one() == ["a"] and database.most == 1
    assert list(await asyncio.gather(one(), one(), one())) == [["a"]] * 3
    assert caplog.records == []


async def test_a_proof_that_takes_too_long_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "ANSWER_S", 0.02)
    database, one = stalled_prover()
    for _ in range(2):
        with pytest.raises(LedgerUnavailable, match="no proof"):
            await one()
    assert database.most == 1
    database.gate.set()
    await turns()
    assert await one() == ["a"]


async def test_a_witness_that_did_not_answer_is_not_waited_for_by_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(proof, "PATIENCE_S", 0.05)
    waits: list[float] = []

    async def read_cosigned(read: Any, work: Any, verifier: Any, *, patience_s: float) -> Any:
        waits.append(patience_s)
        return await read(work)

    monkeypatch.setattr(proof, "read_cosigned", read_cosigned)
    database, one = stalled_prover(Cosigner().verifier)
    database.gate.set()
    for _ in range(3):
        assert await one() == ["a"]
    assert waits == [0.05, 0.0, 0.0]


async def test_a_long_read_is_ended_by_nobody_on_sqlite(tmp_path: Path) -> None:
    """Its thread would go on, and what holds its room would not."""
    database = open_database(f"sqlite:///{tmp_path}/a.db", timeout_s=0.05)
    await database.write(lambda _: None)

    def slow(_: Connection) -> int:
        time.sleep(0.3)
        return 1

    assert await database.read(LongWork(slow)) == 1
    with pytest.raises(LedgerUnavailable):
        await database.read(slow)
    await database.close()
