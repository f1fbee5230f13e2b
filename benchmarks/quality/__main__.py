"""Measures a running server: `python -m benchmarks.quality --url http://127.0.0.1:8000 --key KEY`."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence

import httpx

from benchmarks.load import machine
from benchmarks.load.bars import bars
from benchmarks.quality import comparing, contexts, in_process, options, overview, report
from benchmarks.quality.case import Task
from benchmarks.quality.client import Refused, Target, replies, told_by
from benchmarks.quality.data import BadRow
from benchmarks.quality.scoring import Outcome, judge, summarise


async def over_http(target: Target, tasks: Sequence[Task], selector: str) -> list[Outcome]:
    """Every task over HTTP; judged as the replies come, given back in the order of the tasks."""
    outcomes: dict[tuple[str, str], Outcome] = {}
    with bars() as progress:
        bar = progress.add_task(f"{selector} over HTTP", total=len(tasks))
        async for reply in replies(target, tasks):
            task = reply.task
            outcomes[task.case.name, task.size] = judge(task, selector, reply.output, told_by(reply.receipt))
            progress.advance(bar)
    return [outcomes[task.case.name, task.size] for task in tasks]


def here(tasks: Sequence[Task], kind: str) -> list[Outcome]:
    with bars() as progress:
        found = in_process.outcomes(tasks, kind)
        return list(progress.track(found, total=len(tasks), description=f"{kind} in process"))


def baselines(tasks: Sequence[Task], asked: argparse.Namespace) -> list[Outcome]:
    outcomes = [] if asked.no_baselines else list(comparing.compare(tasks))
    if asked.llmlingua:
        try:
            outcomes += comparing.compare_llmlingua(tasks, asked.llmlingua)
        except FileNotFoundError as error:
            raise SystemExit(f"--llmlingua: {error}") from error
    return outcomes


def run_here(tasks: Sequence[Task], asked: argparse.Namespace) -> None:
    kind = asked.model or in_process.KINDS[0]
    if kind not in in_process.KINDS:
        raise SystemExit(f"--model {kind}: with --in-process one of {', '.join(in_process.KINDS)}")
    try:
        outcomes = here(tasks, kind)
    except in_process.NoEncoder as error:
        raise SystemExit(str(error)) from error
    outcomes += baselines(tasks, asked)
    sys.stdout.write("\n".join([*overview.table_of(summarise(outcomes)), ""]))


def run_over_http(tasks: Sequence[Task], asked: argparse.Namespace) -> None:
    facts = machine.facts("benchmarks.quality")
    selector = asked.model or "server default"
    target = Target(asked.url.rstrip("/"), asked.key, asked.model, asked.clients)
    try:
        outcomes = asyncio.run(over_http(target, tasks, selector))
    except Refused as error:
        raise SystemExit(f"the server refused {error}") from error
    except httpx.TransportError as error:
        raise SystemExit(f"no server answers at {asked.url}: {error}") from error
    outcomes += baselines(tasks, asked)
    what = {"server": asked.url, "model": selector, "data": str(asked.data), "clients": str(asked.clients),
            "rows": "held out from training" if asked.held_out else "all"}  # fmt: skip
    report.report({**facts, **what}, outcomes).publish(asked.out)


def main() -> None:
    asked = options.arguments()
    try:
        makers = contexts.makers(asked.data)
        tasks = list(options.tasks_of(options.chosen(makers, asked), asked))
    except (FileNotFoundError, BadRow) as error:
        raise SystemExit(f"--data {asked.data}: {error}") from error
    (run_here if asked.in_process else run_over_http)(tasks, asked)


if __name__ == "__main__":
    main()
