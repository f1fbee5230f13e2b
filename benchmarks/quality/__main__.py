"""Measures a running server: `python -m benchmarks.quality --url http://127.0.0.1:8000 --key KEY`."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence

import httpx

from benchmarks.evaluation.case import Case, Task
from benchmarks.evaluation.datasets import BadRow
from benchmarks.evaluation.minilm import NoEncoder
from benchmarks.evaluation.suites import catalogue
from benchmarks.load import machine
from benchmarks.load.bars import bars
from benchmarks.quality import ablations, comparing, document, in_process, options, overview, receipts, report
from benchmarks.quality.client import Refused, Target, replies, told_by
from benchmarks.quality.scoring import Outcome, judge, summarise

UNPROCESSABLE = 422


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


def here(tasks: Sequence[Task], kind: str, without: str | None = None) -> list[Outcome]:
    name = kind if without is None else ablations.selector(kind, without)
    with bars() as progress:
        found = in_process.outcomes(tasks, kind, without=without)
        return list(progress.track(found, total=len(tasks), description=f"{name} in process"))


def baselines(tasks: Sequence[Task], asked: argparse.Namespace) -> list[Outcome]:
    outcomes = [] if asked.no_baselines else list(comparing.compare(tasks))
    if asked.llmlingua:
        try:
            outcomes += comparing.compare_llmlingua(tasks, asked.llmlingua)
        except FileNotFoundError as error:
            raise SystemExit(f"--llmlingua: {error}") from error
    return outcomes


def run_here(cases: Sequence[Case], asked: argparse.Namespace) -> None:
    kind = asked.model or in_process.KINDS[0]
    if kind not in in_process.KINDS:
        raise SystemExit(f"--model {kind}: with --in-process one of {', '.join(in_process.KINDS)}")
    tasks = list(options.tasks_of(cases, asked))
    try:
        outcomes = here(tasks, kind)
        if asked.ablations:
            for mechanism in asked.ablations.split(","):
                outcomes += here(tasks, kind, mechanism)
            sys.stdout.write("\n".join(ablations.costs(summarise(outcomes), kind)) + "\n")
            return
    except (NoEncoder, in_process.CannotCompress) as error:
        raise SystemExit(str(error)) from error
    outcomes += baselines(tasks, asked)
    parts = [overview.table_of(summarise(outcomes)), receipts.receipts(outcomes, kind)]
    sys.stdout.write("\n\n".join("\n".join(part) for part in parts if part) + "\n")


async def asked_of(model: str | None, tasks: Sequence[Task], asked: argparse.Namespace) -> list[Outcome]:
    """One model's outcomes. Raises `Refused`, but for a promise that it has no calibration for: that is told."""
    target = Target(asked.url.rstrip("/"), asked.key, model, asked.clients)
    selector = model or "server default"
    outcomes = await over_http(target, [task for task in tasks if task.keep is None], selector)
    promised_tasks = [task for task in tasks if task.keep is not None]
    try:
        outcomes += await over_http(target, promised_tasks, selector)
    except Refused as error:
        if error.status != UNPROCESSABLE:
            raise
        print(f"no promise: {error}", file=sys.stderr)
    return outcomes


def run_over_http(cases: Sequence[Case], asked: argparse.Namespace) -> None:
    facts = machine.facts("benchmarks.quality")
    tasks = list(options.tasks_of(cases, asked))
    try:
        if asked.write:
            document.check(asked.write)
        outcomes = asyncio.run(asked_of(asked.model, tasks, asked))
        if asked.also:
            fewer = list(options.tasks_of(options.also_chosen(cases, asked), asked))
            outcomes += asyncio.run(asked_of(asked.also, fewer, asked))
    except Refused as error:
        raise SystemExit(f"the server refused {error}") from error
    except httpx.TransportError as error:
        raise SystemExit(f"no server answers at {asked.url}: {error}") from error
    except (document.NoPlace, FileNotFoundError) as error:
        raise SystemExit(f"--write: {error}") from error
    outcomes += baselines(tasks, asked)
    what = {"server": asked.url, "model": asked.model or "server default", "data": str(asked.data),
            "clients": str(asked.clients), "rows": "held out from training" if asked.held_out else "all"}  # fmt: skip
    made = report.report({**facts, **what}, outcomes)
    made.publish(asked.out)
    if asked.write:
        print("written:", *document.write(asked.write, made))


def main() -> None:
    asked = options.arguments()
    try:
        cases = options.chosen(catalogue.makers(asked.data), asked)
    except (FileNotFoundError, BadRow) as error:
        raise SystemExit(f"--data {asked.data}: {error}") from error
    (run_here if asked.in_process else run_over_http)(cases, asked)


if __name__ == "__main__":
    main()
