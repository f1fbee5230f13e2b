"""`GET /v1/usage/proof`, as a customer meets it: a file that the verifier finds nothing wrong in, and bounds."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from billing.store.migration import newest_revision
from billing.transparency import verify
from billing.transparency.sequencer import Sequencer
from serve.account import proof
from serve.money.ledger_setup import log_signer
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
