"""Answers kept by `Idempotency-Key`, and the configuration in force after a reload."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from billing.errors import InvalidAccount, LedgerUnavailable
from billing.store.database import Database, FakeOutageDatabase, open_database
from serve.config.settings import Settings
from serve.ops import idempotency
from serve.ops.app import open_ops
from serve.ops.idempotency import KEPT_S, AnswerNotKept, IdempotencyKeyReused, KeptAnswers
from tests.integration.running import free_port
from tests.migrated import migrated_file
from tests.serve.served import settings_document


class Counting:
    """Makes one thing after another."""

    def __init__(self) -> None:
        self.made = 0

    async def make(self) -> dict[str, Any]:
        self.made += 1
        return {"number": self.made}


class Ledger:
    """One whose clock stands still until a test sets it, and its administrators."""

    def __init__(self, database: Database, moment: list[float]) -> None:
        self.database, self.moment = database, moment

    def admin(self, name: str = "one") -> Any:
        return SimpleNamespace(actor=f"admin:{name}", database=self.database)


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    path, moment = tmp_path / "pith.db", [1.0e9]
    path.write_bytes(await migrated_file())
    database = open_database(f"sqlite:///{path}", clock=lambda: moment[0])
    yield Ledger(database, moment)
    await database.close()


async def test_an_answer_is_kept_for_a_day(ledger: Ledger) -> None:
    began, things = ledger.moment[0], Counting()
    made = KeptAnswers(clock=lambda: ledger.moment[0])
    for at, number in ((0.0, 1), (KEPT_S - 1, 1), (KEPT_S, 2), (2 * KEPT_S - 1, 2)):
        ledger.moment[0] = began + at
        assert await made.once(ledger.admin(), "k", "request", things.make) == {"number": number}


async def test_each_administrator_has_keys_of_its_own(ledger: Ledger) -> None:
    made, things = KeptAnswers(), Counting()
    for name, number in (("one", 1), ("two", 2), ("one", 1)):
        assert await made.once(ledger.admin(name), "k", "request", things.make) == {"number": number}
    with pytest.raises(IdempotencyKeyReused):
        await made.once(ledger.admin(), "k", "another request", things.make)


async def test_nothing_is_made_twice_after_a_restart_or_by_another_server(ledger: Ledger) -> None:
    things = Counting()
    await KeptAnswers().once(ledger.admin(), "k", "request", things.make)
    for request, refusal in (("request", AnswerNotKept), ("another", IdempotencyKeyReused)):
        with pytest.raises(refusal):
            await KeptAnswers().once(ledger.admin(), "k", request, things.make)
    assert things.made == 1
    assert await KeptAnswers().once(ledger.admin(), "new", "request", things.make) == {"number": 2}


async def test_an_answer_that_made_room_for_others_is_not_made_again(
    ledger: Ledger, monkeypatch: Any
) -> None:
    monkeypatch.setattr(idempotency, "MOST_KEPT", 2)
    made, things = KeptAnswers(), Counting()
    for key, number in (("a", 1), ("b", 2), ("b", 2), ("c", 3), ("b", 2)):
        assert await made.once(ledger.admin(), key, "request", things.make) == {"number": number}
    with pytest.raises(AnswerNotKept):
        await made.once(ledger.admin(), "a", "request", things.make)


async def test_what_was_refused_may_be_sent_again_and_what_nobody_knows_of_may_not(ledger: Ledger) -> None:
    made, things = KeptAnswers(), Counting()

    async def refused() -> dict[str, Any]:
        raise InvalidAccount("name", "is taken")

    async def unknown() -> dict[str, Any]:
        await things.make()
        raise LedgerUnavailable("the answer was lost")

    with pytest.raises(InvalidAccount):
        await made.once(ledger.admin(), "k", "request", refused)
    assert await made.once(ledger.admin(), "k", "request", things.make) == {"number": 1}
    with pytest.raises(LedgerUnavailable):
        await made.once(ledger.admin(), "lost", "request", unknown)
    with pytest.raises(AnswerNotKept):
        await made.once(ledger.admin(), "lost", "request", things.make)
    assert things.made == 2


async def test_without_a_ledger_nothing_is_begun(ledger: Ledger) -> None:
    things, outage = Counting(), FakeOutageDatabase(ledger.database)
    ledger.database, outage.is_down = outage, True
    with pytest.raises(LedgerUnavailable):
        await KeptAnswers().once(ledger.admin(), "k", "request", things.make)
    outage.is_down = False
    assert await KeptAnswers().once(ledger.admin(), "k", "request", things.make) == {"number": 1}


LEXICAL = {"id": "lexical", "name": "Lexical", "blurb": "For tests.", "kind": "lexical"}


def test_a_default_is_checked_against_the_compression_models_of_now(tmp_path: Path) -> None:
    (tmp_path / "pith.db").write_bytes(asyncio.run(migrated_file()))
    port = {"port": free_port()}
    before = Settings.model_validate(settings_document(tmp_path, ops=port))
    after = Settings.model_validate(settings_document(tmp_path, ops=port, compression={"models": [LEXICAL]}))
    in_force = [before]
    close = open_ops(before, CollectorRegistry(), in_force=lambda: in_force[-1])
    key = (before.state_dir / "admin-key").read_text().strip()
    url, headers = f"http://127.0.0.1:{before.ops.port}/admin/v1", {"Authorization": f"Bearer {key}"}
    try:
        with httpx.Client(base_url=url, headers=headers) as admin:
            admin.post("/workspaces", json={"name": "acme"}).raise_for_status()
            wanted = {"workspace": "acme", "name": "p", "compression": {"target_ratio": 0.3}}
            assert admin.post("/projects", json=wanted).status_code == 422
            in_force.append(after)
            assert admin.post("/projects", json=wanted).status_code == 201
    finally:
        close()
