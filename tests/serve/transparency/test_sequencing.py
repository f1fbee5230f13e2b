"""The sequencer of `pith serve`: it makes leaves by itself, follows a reload, and is seen where it fails."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from billing.store.database import Database, open_database
from billing.transparency import log_sql
from serve.config.settings import Settings
from serve.transparency.sequencing import sequencing
from tests.migrated import migrated_file
from tests.serve.metrics.readings import counting, of_registry
from tests.serve.money.test_upkeep import CENT, spend
from tests.serve.served import DEADLINE_S, eventually, settings_document

FAILING = 'pith_background_failing_seconds{task="log"}'


def settings_of(folder: Path, origin: str) -> Settings:
    document = settings_document(folder, log={"origin": origin})
    document["billing"]["upkeep_s"] = 0.05
    return Settings.model_validate(document).anchored(folder)


async def test_what_is_settled_becomes_leaves_under_the_name_that_is_in_force(tmp_path: Path) -> None:
    in_force = [settings_of(tmp_path, "one.example/log")]
    (tmp_path / "pith.db").write_bytes(await migrated_file())
    database = open_database(in_force[0].billing.database_url)
    counts, shown = counting()
    try:
        with sequencing(lambda: in_force[-1], counts):
            await spend(database, in_force[0], [CENT, CENT])
            await until_signed(database, "one.example/log", 2)
            in_force.append(settings_of(tmp_path, "two.example/log"))
            await until_signed(database, "two.example/log", 2)
        assert of_registry(shown)[FAILING] == 0
    finally:
        await database.close()


async def until_signed(database: Database, origin: str, size: int) -> None:
    deadline, begin = time.monotonic() + DEADLINE_S, f"{origin}\n{size}\n"
    while not (head := await database.read(log_sql.head)).note.startswith(begin):
        assert time.monotonic() < deadline, head
        await asyncio.sleep(0.02)


async def test_without_a_ledger_its_failure_is_shown_and_its_end_is_not_held_up(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, "one.example/log")
    counts, shown = counting()
    with sequencing(lambda: settings, counts):
        await eventually(lambda: of_registry(shown).get(FAILING, 0) > 0)
