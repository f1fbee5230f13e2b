"""Measures whether the engine's own check of a compressed chat tells that its evidence was lost.

`python -m benchmarks.answers.preservation --key KEY --ledger URL` asks held-out cases under compression with
`verify: 1`, takes from `/v1/compress` what was sent, judges it as its suite does, and reads the checks in the ledger.
The server scores in a share of the engine's time, `compression.chat.verify_engine_share`.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Protocol

import httpx

from benchmarks.answers.arms import Arm, all_of, body
from benchmarks.answers.asking import TIMEOUT_S, Reader, Refused
from benchmarks.answers.auroc import Auroc, Sample, auroc
from benchmarks.answers.options import cases_of, parser_of, record_of
from benchmarks.answers.prompts import PROMPTS, Prompt
from benchmarks.answers.record import Record
from benchmarks.answers.running import Run
from benchmarks.evaluation.case import Case, Task
from benchmarks.load import machine
from benchmarks.load.bars import bars
from benchmarks.load.report import Report, table
from benchmarks.quality.scoring import judge
from billing.errors import LedgerUnavailable
from billing.preservation.checks import PreservationCheck, PreservationStore
from billing.store.database import open_database

RATIOS = (0.25, 0.1, 0.05, 0.02)
# Of either kind: an area of fewer, and its interval, say nothing.
FEWEST = 5
ARMS = tuple(Arm(f"{ratio:g}", all_of, {"target_ratio": ratio, "verify": 1.0}) for ratio in RATIOS)
LOOK_S = 1.0
HEAD = (
    "suite", "replies", "lost", "AUROC of nats a token", "AUROC of 1 - agreement", "nats a token, median: lost",
    "kept",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Checked:
    """One reply: whether its evidence was lost, and what the engine said of it."""

    suite: str
    case: str
    ratio: str
    is_lost: bool
    nats: float
    agreement: float


def is_lost(http: httpx.Client, case: Case, arm: Arm, prompt: Prompt) -> bool:
    """By the suite's own measure of what was sent. Raises `Refused`."""
    asked = body(case, arm, prompt, None)
    response = http.post(
        "/v1/compress",
        json={"messages": asked["messages"], "compression": {"scope": "marked", **asked["compression"]}},
    )
    if response.status_code != 200:
        raise Refused(f"{case.name} ({arm.name}): {response.status_code} {response.text[:500]}")
    at = next(index for index, part in enumerate(asked["messages"][-1]["content"]) if part.get("compress"))
    sent: str = response.json()["messages"][-1]["content"][at]["text"]
    return not judge(Task(case, float(arm.name)), "pith", sent).has_evidence


def area(checked: Sequence[Checked], figure: str) -> Auroc | None:
    """Cases are groups: their ratios are not independent of each other. None of fewer than `FEWEST` of a kind."""
    lost = sum(each.is_lost for each in checked)
    if min(lost, len(checked) - lost) < FEWEST:
        return None
    found = [(each, each.nats if figure == "nats" else 1 - each.agreement) for each in checked]
    return auroc([Sample(each.case, value, each.is_lost) for each, value in found])


def row(suite: str, checked: Sequence[Checked]) -> list[str]:
    lost, kept = ([each.nats for each in checked if each.is_lost is was_lost] for was_lost in (True, False))
    areas = [area(checked, figure) for figure in ("nats", "agreement")]
    return [
        suite,
        str(len(checked)),
        str(len(lost)),
        *(f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})" if found else "" for found in areas),
        *(f"{median(nats):.2f}" if nats else "" for nats in (lost, kept)),
    ]


def report_of(checked: Sequence[Checked], facts: Mapping[str, str]) -> Report:
    """All suites together, each by itself, and each ratio."""
    parts: dict[str, list[Checked]] = {"all": list(checked)}
    for each in checked:
        parts.setdefault(each.suite, []).append(each)
    for arm in ARMS:
        parts[f"all at {arm.name}"] = [each for each in checked if each.ratio == arm.name]
    lines = table(HEAD, [row(name, some) for name, some in parts.items() if some])
    return Report(
        "preservation",
        "Checks of compressed chats",
        facts,
        lines,
        {"checked": [asdict(each) for each in checked]},
    )


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = parser_of(
        "python -m benchmarks.answers.preservation",
        "Whether the engine's check of a compressed chat tells that its evidence was lost.",
        out=Path("var/bench-preservation"),
        limit=25,
    )
    parser.add_argument("--ledger", default="sqlite:///var/pith.db", help="the server's billing.database_url")
    parser.add_argument("--wait-s", type=float, default=120.0, help="for the checks of a case")
    return parser.parse_args(words)


class ReadsChecks(Protocol):
    """`PreservationStore`, of which nothing else is wanted here."""

    async def read(self) -> list[PreservationCheck]: ...


@dataclass(frozen=True, slots=True)
class Checks:
    """The engine's checks in the ledger, by the request that each is of: the admin API has their sums alone."""

    store: ReadsChecks
    wait_s: float

    async def of(self, request_ids: Collection[str]) -> Mapping[str, PreservationCheck]:
        """Waits for them; those that are not there in time are left out: the server may drop some."""
        until = time.monotonic() + self.wait_s
        while True:
            found = {
                each.request_id: each for each in await self.store.read() if each.request_id in request_ids
            }
            if len(found) == len(request_ids) or time.monotonic() > until:
                return found
            await asyncio.sleep(LOOK_S)


async def measure(cases: Sequence[Case], run: Run, checks: Checks) -> AsyncIterator[Sequence[Checked]]:
    """One case at a time: the engine scores while nobody asks it. Raises `Refused`."""
    for case in cases:
        run.ask(case, is_alone=True)
        asked = [(arm, run.record.answers.get((case.name, arm.name))) for arm in run.arms]
        ids = {answer.request_id: arm for arm, answer in asked if answer and answer.fits}
        found = await checks.of(ids)
        yield [
            Checked(
                case.suite, case.name, arm.name, is_lost(run.reader.http, case, arm, run.reader.prompt),
                found[request_id].nats_per_token, found[request_id].agreement,
            )
            for request_id, arm in ids.items() if request_id in found
        ]  # fmt: skip


async def checked_of(cases: Sequence[Case], record: Record, asked: argparse.Namespace) -> list[Checked]:
    """Raises `Refused`, `httpx.TransportError` and `LedgerUnavailable`."""
    database = open_database(asked.ledger)
    checks = Checks(PreservationStore(database), asked.wait_s)
    headers = {"Authorization": f"Bearer {asked.key}"}
    until = time.monotonic() + 60 * asked.minutes
    found: list[Checked] = []
    try:
        with httpx.Client(base_url=asked.url, headers=headers, timeout=TIMEOUT_S) as http, bars() as progress:
            bar = progress.add_task("cases", total=len(cases))
            run = Run(Reader(http, PROMPTS[asked.prompt], asked.model), ARMS, record, until)
            async for some in measure(cases, run, checks):
                found += some
                progress.advance(bar)
    finally:
        await database.close()
    return found


def main() -> None:
    asked = arguments()
    cases, record = cases_of(asked), record_of(asked)
    facts = machine.facts("benchmarks.answers.preservation")
    try:
        checked = asyncio.run(checked_of(cases, record, asked))
    except Refused as error:
        raise SystemExit(f"the server refused {error}") from error
    except httpx.TransportError as error:
        raise SystemExit(f"no server answers at {asked.url}: {error}") from error
    except LedgerUnavailable as error:
        raise SystemExit(f"--ledger {asked.ledger}: {error}") from error
    what = {"server": asked.url, "model": asked.model or "server default", "data": str(asked.data),
            "prompt": asked.prompt}  # fmt: skip
    report_of(checked, {**facts, **what}).publish(asked.out)


if __name__ == "__main__":
    main()
