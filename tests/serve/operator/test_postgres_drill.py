"""The same drill with a ledger on PostgreSQL: `pith backup` for what is on the machine, then pg_dump for the ledger."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.ledger.postgres_server import PostgresNotFound, postgres_binaries, private_postgres
from billing.caller import NO_LIMITS
from tests.serve.operator.test_drill import ALLOWANCE, ask, done, names
from tests.serve.served import serving, settings_document

pytestmark = pytest.mark.integration


@pytest.fixture
def postgres() -> Iterator[str]:
    try:
        with private_postgres(fsync=False) as server:
            yield server
    except PostgresNotFound as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(f"{error} to run this")


def run(program: str, *arguments: str | Path) -> None:
    binaries = postgres_binaries()
    assert binaries is not None
    subprocess.run([binaries / program, *arguments], check=True, capture_output=True)


def configured(folder: Path, url: str) -> dict[str, Any]:
    folder.mkdir()
    found = settings_document(folder)
    found["billing"] |= {**ALLOWANCE, "database_url": url}
    (folder / "pith.yaml").write_text(yaml.safe_dump(found))
    billing: dict[str, Any] = found["billing"]
    return billing


async def test_the_drill_on_postgresql(tmp_path: Path, postgres: str) -> None:
    plain = postgres.replace("+asyncpg", "")
    for name in ("here", "there"):
        run("createdb", "--maintenance-db", f"{plain}/postgres", name)
    here = configured(tmp_path / "here", f"{postgres}/here")
    there = configured(tmp_path / "there", f"{postgres}/there")
    async with serving(tmp_path / "here", billing=here) as service:
        key = await service.new_key("acme", limits=NO_LIMITS)
        await ask(service, key, names("before", 3))
        service.database.is_down = True
        await ask(service, key, names("spooled", 2))
    async with serving(tmp_path / "here", billing=here) as service:
        await done("backup", tmp_path / "backup", "--config", tmp_path / "here/pith.yaml")
        # Usage that reaches the ledger between the two is in both, and is charged once.
        assert (await service.ledger.replay_spool()).posted == 2
        dump = tmp_path / "ledger.dump"
        await asyncio.to_thread(run, "pg_dump", "--format=custom", f"--file={dump}", f"{plain}/here")
        await ask(service, key, names("after", 2))

    run("pg_restore", "--exit-on-error", f"--dbname={plain}/there", dump)
    await done("restore", tmp_path / "backup", "--config", tmp_path / "there/pith.yaml")
    await done("reconcile", "--config", tmp_path / "there/pith.yaml")
    async with serving(tmp_path / "there", billing=there) as service:
        replayed = await service.ledger.replay_spool()
        assert (replayed.posted, replayed.known) == (0, 2)
        await ask(service, key, ["restored"])
    printed = await done("usage", "--json", "--by", "project", "--config", tmp_path / "there/pith.yaml")
    assert '"requests": 6' in printed, printed
    await done("reconcile", "--config", tmp_path / "there/pith.yaml")
