"""One recorded run, and the power cuts that are tried on it."""

from __future__ import annotations

import asyncio
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.ledger.postgres_server import memory_folder
from tests.faults.postgres import OwnPostgres
from tests.migrated import create_database
from tests.power_loss.audit import Told, Verdict, audit
from tests.power_loss.disk import CUTS, Cut, Disk
from tests.power_loss.journal import SYNC, TOLD, Record, build_recorder, read, recorded_environment
from tests.power_loss.workload import LEDGER, STATE

RUN_S = 900.0
DATABASE = "pith"


@dataclass
class Crash:
    """The power went after `position` records of the run, and left what `cut` says."""

    position: int
    cut: Cut
    promises: int
    verdict: Verdict


@dataclass
class Findings:
    """What was tried and what was found. `records` of the run; `promises` over all crashes."""

    records: int = 0
    syncs: int = 0
    crashes: list[Crash] = field(default_factory=list)

    @property
    def promises(self) -> int:
        return sum(crash.promises for crash in self.crashes)

    @property
    def failed(self) -> list[Crash]:
        return [crash for crash in self.crashes if crash.verdict.violations]


@contextmanager
def workplace() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pith-power-", dir=memory_folder()) as name:
        yield Path(name).resolve()


def record(folder: Path, url: str, seed: int, requests: int, environment: dict[str, str]) -> None:
    """Raises `CalledProcessError`, with what the run wrote on its standard error."""
    command = [sys.executable, "-m", "tests.power_loss.workload", folder, url, seed, requests]
    subprocess.run(list(map(str, command)), check=True, env=environment, timeout=RUN_S)


def positions(records: int, crashes: int, rng: random.Random) -> list[int]:
    """Where the power goes, in order: anywhere in the run, at no place twice unless there are too few."""
    if crashes <= records:
        return sorted(rng.sample(range(1, records + 1), crashes))
    return sorted(rng.randint(1, records) for _ in range(crashes))


def cuts(
    disk: Disk, journal: Path, crashes: int, rng: random.Random, findings: Findings
) -> Iterator[tuple[int, Cut, Told]]:
    """Brings the disk to one crash after the other."""
    findings.records = sum(1 for _ in read(journal))
    told, passed, records = Told(), 0, read(journal)
    for position in positions(findings.records, crashes, rng):
        while passed < position:
            _go_on(next(records), disk, told, findings)
            passed += 1
        yield position, rng.choice(CUTS), told


def _go_on(record: Record, disk: Disk, told: Told, findings: Findings) -> None:
    if record.kind == TOLD:
        told.hear(record.told())
    else:
        findings.syncs += record.kind == SYNC
        disk.apply(record)


def on_sqlite(*, seed: int, crashes: int, requests: int) -> Iterator[Findings]:
    """Yields what was found so far, after each crash."""
    rng, findings = random.Random(seed), Findings()
    with workplace() as place:
        disk_folder, journal = place / "disk", place / "journal"
        disk_folder.mkdir()
        journal.touch()
        environment = recorded_environment(build_recorder(place), disk_folder, journal)
        disk = Disk(disk_folder)
        record(disk_folder, f"sqlite:///{disk_folder / STATE / LEDGER}", seed, requests, environment)
        for position, cut, told in cuts(disk, journal, crashes, rng, findings):
            image = place / "image"
            disk.write_after(cut, rng, image)
            verdict = asyncio.run(audit(image / STATE, f"sqlite:///{image / STATE / LEDGER}", told))
            findings.crashes.append(Crash(position, cut, told.promises, verdict))
            shutil.rmtree(image)
            yield findings


# Checkpoints throughout a short run, of whose log files each is used again.
OFTEN = {"checkpoint_timeout": "30s", "min_wal_size": "2MB", "max_wal_size": "4MB"}
SYNCED = {"fsync": "on", "full_page_writes": "on", **OFTEN}


def on_postgres(*, seed: int, crashes: int, requests: int) -> Iterator[Findings]:
    """The same with PostgreSQL, whose processes and the server's are recorded in one journal. Raises
    `MissingProgram`."""
    rng, findings = random.Random(seed), Findings()
    with workplace() as place:
        # PostgreSQL has a user of its own.
        place.chmod(0o755)
        disk_folder, journal = place / "disk", place / "journal"
        disk_folder.mkdir()
        journal.touch()
        journal.chmod(0o666)
        _make_cluster(disk_folder)
        disk = Disk(disk_folder)
        environment = recorded_environment(build_recorder(place), disk_folder, journal)
        server = OwnPostgres(disk_folder, settings=SYNCED, environment=environment)
        try:
            server.start()
            record(disk_folder, server.url(DATABASE), seed, requests, environment)
            server.kill()
        finally:
            server.close()
        for position, cut, told in cuts(disk, journal, crashes, rng, findings):
            image = place / "image"
            disk.write_after(cut, rng, image)
            findings.crashes.append(Crash(position, cut, told.promises, _after_restart(image, told)))
            yield findings


def _make_cluster(folder: Path) -> None:
    server = OwnPostgres(folder)
    server.start()
    prefix = server.url("").removesuffix("/")
    asyncio.run(create_database(prefix, DATABASE, migrated=False))
    server.shut_down()


def _after_restart(image: Path, told: Told) -> Verdict:
    # Its process is not there any more, though another may have its number.
    (image / "data" / "postmaster.pid").unlink(missing_ok=True)
    server = OwnPostgres(image)
    try:
        server.start()
        return asyncio.run(audit(image / STATE, server.url(DATABASE), told))
    except TimeoutError as error:
        return Verdict(wrong=[f"PostgreSQL does not start: {error}: {(image / 'log').read_text()[-600:]}"])
    finally:
        server.close()
