"""Originals as they are stored, sealed and in turns with other writes, and as they go when their time is over."""

from __future__ import annotations

import asyncio
import itertools
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text
from typer.testing import CliRunner

from billing.accounts.accounts import Accounts
from billing.caller import Caller
from billing.ledger.leases import LeaseTimes
from billing.ledger.spool import Spool
from billing.originals.original_sql import Head
from billing.store.database import Database, open_database
from serve.app import open_ledger, open_originals
from serve.cli.main import app
from serve.config.settings import Settings, load_settings
from serve.metrics.background import OriginalMetrics, UpkeepMetrics
from serve.metrics.counts import Counts
from serve.money.ledger_setup import open_accounts
from serve.money.upkeep import begin_upkeep
from serve.originals.originals import CHUNK_CHARACTERS, Original, Sealer, Turns, Unreadable, chunks_of
from tests.migrated import migrated_file
from tests.serve.metrics.readings import counting
from tests.serve.served import settings_document

PEPPER = b"p" * 32


def head_of(text: str, **fields: str) -> Head:
    given = {"project_id": "prj_a", "id": "cmp_a", "generation": "0" * 32, **fields}
    return Head(**given, characters=len(text), chunks=chunks_of(len(text)), size=len(text.encode()))


@given(st.text(), st.sampled_from([1, CHUNK_CHARACTERS, 3 * CHUNK_CHARACTERS + 1]))
def test_what_is_opened_is_what_was_sealed(piece: str, least: int) -> None:
    text = piece * (least // max(1, len(piece)) + 1)
    sealer = Sealer(PEPPER, head_of(text))
    chunks = sealer.seal(text, 0, 10**6, 10**9)
    assert [number for number, _ in chunks] == list(range(chunks_of(len(text))))
    assert "".join(sealer.open(0, [sealed for _, sealed in chunks])) == text
    assert all(len(sealed) < 66_000 for _, sealed in chunks)


def test_a_text_that_cannot_be_compressed_stays_within_64_kib_and_a_little() -> None:
    text = "".join(chr(0x10000 + 977 * n % 0xF0000) for n in range(CHUNK_CHARACTERS))
    ((_, sealed),) = Sealer(PEPPER, head_of(text)).seal(text, 0, 16, 1)
    assert len(sealed) < 64 * 1024 + 64


def test_a_step_ends_once_it_has_enough() -> None:
    text = "".join(chr(0x10000 + 977 * n % 0xF0000) for n in range(4 * CHUNK_CHARACTERS))
    sealer = Sealer(PEPPER, head_of(text))
    assert [number for number, _ in sealer.seal(text, 1, 16, 1)] == [1]
    assert [number for number, _ in sealer.seal(text, 1, 2, 10**9)] == [1, 2]


@pytest.mark.parametrize("field", ["project_id", "id", "generation"])
def test_a_chunk_of_another_name_is_not_opened(field: str) -> None:
    text = "The pump ships with a filter."
    head = head_of(text)
    ((_, sealed),) = Sealer(PEPPER, head).seal(text, 0, 1, 1)
    with pytest.raises(Unreadable):
        list(Sealer(PEPPER, head_of(text, **{field: "another"})).open(0, [sealed]))
    with pytest.raises(Unreadable):
        list(Sealer(PEPPER, replace(head, characters=5)).open(0, [sealed]))


def test_a_chunk_in_another_place_a_changed_one_and_another_pepper_are_not_opened() -> None:
    text = "a" * CHUNK_CHARACTERS + "b"
    sealer = Sealer(PEPPER, head_of(text))
    (_, first), (_, second) = sealer.seal(text, 0, 2, 10**9)
    for number, sealed in ((0, second), (1, first), (0, first[:-1] + bytes([first[-1] ^ 1]))):
        with pytest.raises(Unreadable):
            list(sealer.open(number, [sealed]))
    with pytest.raises(Unreadable):
        list(Sealer(b"q" * 32, head_of(text)).open(0, [first]))


def test_the_same_text_written_twice_has_nothing_in_common() -> None:
    text = "The warranty ends after two years. " * 100
    once, again = (
        Sealer(PEPPER, head_of(text, generation=name * 32)).seal(text, 0, 1, 1)[0][1] for name in "ab"
    )
    pieces = {once[at : at + 8] for at in range(len(once) - 8)}
    assert not [at for at in range(len(again) - 8) if again[at : at + 8] in pieces]


async def test_after_a_write_comes_as_long_a_pause_and_then_the_next_in_line() -> None:
    turns, begun = Turns(), []
    loop = asyncio.get_running_loop()

    async def write(name: str) -> None:
        async with turns.turn():
            begun.append((name, loop.time()))
            await asyncio.sleep(0.03)

    await asyncio.gather(*(write(name) for name in "abc"))
    assert [name for name, _ in begun] == ["a", "b", "c"]
    assert all(later - earlier >= 0.055 for (_, earlier), (_, later) in itertools.pairwise(begun))


async def test_a_write_that_fails_or_is_given_up_ends_its_turn() -> None:
    turns = Turns()
    for error in (ValueError, asyncio.CancelledError):
        try:
            async with turns.turn():
                raise error
        except (ValueError, asyncio.CancelledError):
            pass
    entered = asyncio.Event()

    async def hang() -> None:
        async with turns.turn():
            entered.set()
            await asyncio.Event().wait()

    hanging, waiting = asyncio.create_task(hang()), asyncio.create_task(hang())
    await entered.wait()
    waiting.cancel()
    hanging.cancel()
    await asyncio.gather(hanging, waiting, return_exceptions=True)
    async with asyncio.timeout(60), turns.turn():
        pass


async def ledger_in(folder: Path, **billing: Any) -> tuple[Settings, Database, Accounts]:
    document = settings_document(folder)
    document["billing"] |= billing
    (folder / "pith.yaml").write_text(yaml.safe_dump(document))
    (folder / "pith.db").write_bytes(await migrated_file())
    settings = load_settings(folder / "pith.yaml")
    database, accounts = await open_accounts(settings)
    return settings, database, accounts


async def caller_in(accounts: Accounts, name: str) -> Caller:
    now = datetime.now(UTC)
    await accounts.create_workspace(name, now=now)
    await accounts.create_project(name, "p", now=now)
    _, token = await accounts.keys.create(f"{name}/p", "k", now=now)
    return await accounts.authenticate(token, now=now)


async def keep(settings: Settings, database: Database, caller: Caller, *ids: str) -> None:
    originals = open_originals(settings, database, OriginalMetrics(Counts()))
    kept = await originals.keep(caller, [Original(id_, "the text") for id_ in ids], retain_s=600)
    assert kept.until.keys() == set(ids)


async def ids_in(database: Database) -> list[str]:
    statement = text("SELECT id FROM originals ORDER BY id")
    return await database.read(lambda c: list(c.execute(statement).scalars()))


async def test_a_servers_upkeep_deletes_what_has_expired_and_counts_it(tmp_path: Path) -> None:
    settings, database, accounts = await ledger_in(tmp_path, upkeep_s=0.02)
    spool, (counts, registry) = Spool(settings.billing.spool_path), counting()
    ledger = open_ledger(settings, database, spool)
    caller, revoked = [await caller_in(accounts, name) for name in ("acme", "gone")]
    await keep(settings, database, caller, "a", "b")
    await keep(settings, database, revoked, "c")
    await database.write(lambda c: c.execute(text("UPDATE originals SET expires_at = 1 WHERE id = 'a'")))
    await accounts.revoke_workspace("gone", now=datetime.now(UTC))
    background = begin_upkeep(settings, database, ledger, LeaseTimes(), UpkeepMetrics(counts))
    try:
        async with asyncio.timeout(60):
            while await ids_in(database) != ["b"]:  # noqa: ASYNC110 - nothing signals it
                await asyncio.sleep(0.02)
    finally:
        await background.stop()
        await ledger.close()
        await spool.close()
        await database.close()
    counted = [
        registry.get_sample_value("pith_originals_deleted_total", {"reason": reason})
        for reason in ("expired", "revoked", "unfinished")
    ]
    assert counted == [1, 1, 0]


def test_an_operator_deletes_all_that_a_project_has(tmp_path: Path) -> None:
    async def prepare() -> None:
        settings, database, accounts = await ledger_in(tmp_path)
        await keep(settings, database, await caller_in(accounts, "acme"), "a", "b")
        await keep(settings, database, await caller_in(accounts, "other"), "c")
        await database.close()

    async def left() -> list[str]:
        database = open_database(load_settings(tmp_path / "pith.yaml").billing.database_url)
        try:
            return await ids_in(database)
        finally:
            await database.close()

    def pith(*words: str) -> Any:
        done = CliRunner().invoke(app, [*words, "--json", "--config", str(tmp_path / "pith.yaml")])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    asyncio.run(prepare())
    had = pith("project", "forget-originals", "acme/p")
    assert had["originals"] == 2 and asyncio.run(left()) == ["c"]
    entry = pith("audit", "--workspace", "acme")[-1]
    assert (entry["action"], entry["details"]) == ("project.forget", had)
    assert pith("project", "forget-originals", "acme/p") == {"originals": 0, "bytes": 0}
