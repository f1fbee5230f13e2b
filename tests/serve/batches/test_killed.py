"""Servers that are killed again and again in the middle of a batch: every line is there once, and paid for once."""

from __future__ import annotations

import asyncio
import json
import signal
from itertools import cycle, islice
from pathlib import Path

import pytest
from sqlalchemy import text

from billing.batches.file_store import STORE
from billing.books.books import Books
from tests.billing.conftest import database_url, postgres_server
from tests.faults.postgres import free_port
from tests.forked import processes
from tests.serve.batches import dying_server
from tests.serve.batches.dying_server import DONE
from tests.serve.batches.uploading import chat_line, jsonl, lines_of, looked_at, made
from tests.serve.served import Served, serving, settings_document

__all__ = ["database_url", "postgres_server"]
LINES = 12
WAYS_TO_DIE = ("before", "within", "after")
MOST_DEATHS = 80


def run_until_it_dies(path: Path, at: int, when: str) -> int:
    """The exit status of a server that is killed at its write number `at`, unless nothing is left to do before."""
    log = path.with_name("dying.log")
    server = processes.Process(target=dying_server.run, args=(path, log, at, when))
    server.start()
    server.join(60)
    if server.is_alive():
        server.kill()
        raise AssertionError(f"neither dead nor done: {log.read_text()[-3000:]}")
    assert server.exitcode in (DONE, -signal.SIGKILL), log.read_text()[-3000:]
    return server.exitcode


async def deaths_until_done(path: Path) -> int:
    """Each server lives for two writes more than the one before, so that they die at every stage, and get on."""
    for deaths, when in enumerate(islice(cycle(WAYS_TO_DIE), MOST_DEATHS)):
        if await asyncio.to_thread(run_until_it_dies, path, 3 + 2 * deaths, when) == DONE:
            return deaths
    raise AssertionError(f"not done after {MOST_DEATHS} deaths")


@pytest.mark.integration
async def test_whatever_dies_no_line_is_lost_or_doubled_in_the_files_or_on_the_bill(
    database_url: str, tmp_path: Path
) -> None:
    billing = {"database_url": database_url, "spool_path": str(tmp_path / "spool.db"), "upkeep_s": 0.2}
    server = {"max_body_bytes": 4096, "port": free_port()}
    async with serving(tmp_path, billing=billing, server=server) as service:
        served = await service.renewed()
        lines = [
            chat_line(str(number), **({"temperature": 9} if number % 5 == 0 else {}))
            for number in range(LINES)
        ]
        batch = await made(served, jsonl(lines))
        path = tmp_path / "settings.json"
        path.write_text(json.dumps(settings_document(tmp_path, billing=billing, server=server)))
        assert await deaths_until_done(path) >= 6
        done = await looked_at(served, batch)
        assert done.status == "completed"
        good = await lines_of(served, done.output_file_id)
        bad = await lines_of(served, done.error_file_id)
        assert [line["custom_id"] for line in good] == [str(n) for n in range(LINES) if n % 5]
        assert [line["custom_id"] for line in bad] == [str(n) for n in range(LINES) if n % 5 == 0]
        assert sorted(await charged(served)) == sorted(line["id"] for line in good)
        assert (await Books(served.database).reconcile(served.spool)).is_clean
        assert await served.spool.count_waiting() == 0
        await nothing_else_is_on_disk(served, {done.input_file_id, done.output_file_id, done.error_file_id})


async def charged(served: Served) -> list[str]:
    """The ids of the requests that were paid for, once for each time."""
    statement = text("SELECT request_id FROM usage_events WHERE cost_nano_usd > 0")
    return list(await served.database.read(lambda c: c.execute(statement).scalars().all()))


async def nothing_else_is_on_disk(served: Served, wanted: set[str | None]) -> None:
    """What servers that died were writing goes when its time is over."""
    over = text("UPDATE batch_files SET expires_at = 0 WHERE NOT complete")
    await served.database.write(lambda c: c.execute(over) and None)
    await served.batches.files.delete_expired()
    assert {path.name for path in (served.settings.state_dir / "files").iterdir()} == {*wanted, STORE}
    totals = text("SELECT sum(files) FROM batch_file_totals")
    assert await served.database.read(lambda c: c.execute(totals).scalar_one()) == len(wanted)
