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
from tests.power_loss.audit import Told, Verdict, audit
from tests.power_loss.disk import CUTS, Cut, Disk
from tests.power_loss.journal import SYNC, TOLD, Record, build_recorder, read, recorded_environment
from tests.power_loss.workload import LEDGER, STATE

RUN_S = 900.0


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
