"""A released reader of such logs, that of Go's checksum database, reads ours: its checkpoint, tiles and proofs."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from sqlalchemy import insert

from billing.accounts.accounts import Accounts
from billing.store.database import open_database
from billing.store.schema import usage_events
from billing.transparency import log_sql
from billing.transparency.log_sql import Head
from billing.transparency.notes import Signer
from billing.transparency.notes import signer as signer_of
from billing.transparency.tree import leaf_hash
from billing.usage import now
from models.fake_engine import FakeEngine
from serve.money.ledger_setup import log_signer, read_pepper
from tests.billing.conftest import event_row
from tests.billing.transparency.logged import leaves_of, sequencer
from tests.serve.loopback_service import Running, service

# Where Debian has the sources of Go's packages.
GO_PATH = Path("/usr/share/gocode")
SUMDB = GO_PATH / "src/golang.org/x/mod/sumdb/tlog"
OLD, MORE = 300, 400


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, built from its source and Debian's packages alone."""
    if shutil.which("go") is None or not SUMDB.is_dir():
        missing = "no Go with x/mod; install it (Debian: apt-get install golang-go golang-golang-x-mod-dev)"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    built = tmp_path_factory.mktemp("go")
    environment = {
        **os.environ,
        "GOPATH": str(GO_PATH),
        "GO111MODULE": "off",
        "GOCACHE": str(built / "cache"),
    }
    source = Path(__file__).parent / "go_reader/main.go"
    subprocess.run(["go", "build", "-o", built / "reader", source], check=True, env=environment)
    return built / "reader"


def test_a_released_reader_proves_every_leaf_and_the_history(reader: Path, tmp_path: Path) -> None:
    with service(tmp_path, FakeEngine()) as running:
        signer = log_signer(running.settings)
        old = asyncio.run(grown(running, signer, OLD))
        new = asyncio.run(grown(running, signer, MORE))
        leaves = asyncio.run(read(running))
        assert (old.size, new.size, len(leaves)) == (OLD, OLD + MORE, OLD + MORE)

        def ask(
            *, key: str = str(signer.verifier), root: bytes = old.root, first: bytes | None = None
        ) -> str:
            hashes = [leaf_hash(one) for one in (first or leaves[0], *leaves[1:])]
            told = subprocess.run(
                [reader, f"{running.url}/log", key, str(old.size), base64.b64encode(root).decode()],
                input="\n".join(base64.b64encode(one).decode() for one in hashes),
                capture_output=True,
                text=True,
            )
            return told.stdout or told.stderr

        assert ask() == f"{signer.origin} {OLD + MORE}\n"
        assert ask(first=leaves[1]).startswith("leaf 0:")
        assert ask(root=new.root).startswith("the old tree:")
        other = signer_of(b"another secret", signer.origin)
        assert "note has no verifiable signatures" in ask(key=str(other.verifier))


async def grown(running: Running, signer: Signer, number: int) -> Head:
    """The head after so many more events."""
    database = open_database(running.settings.billing.database_url)
    try:
        caller = await Accounts(database, pepper=read_pepper(running.settings.state_dir)).authenticate(
            running.key, now=now()
        )
        version = await database.read(
            lambda c: c.exec_driver_sql("SELECT max(version) FROM prices").scalar_one()
        )
        model = {"model_id": running.settings.models[0].id, "pricing_version": version, "cost_nano_usd": 1}
        rows = [event_row(caller, now(), **model) for _ in range(number)]
        await database.write(lambda c: c.execute(insert(usage_events), rows) and None)
        await sequencer(database, by=signer).once()
        return await database.read(log_sql.head)
    finally:
        await database.close()


async def read(running: Running) -> list[bytes]:
    database = open_database(running.settings.billing.database_url)
    try:
        return await database.read(leaves_of)
    finally:
        await database.close()
