"""Compares pith with the bare engine and its rivals: `python -m benchmarks.overhead --sides bare,pith,ray`.

Every side runs the default model of --config with the same engine arguments. One side works at a time: the others are
paused (their processes are sent SIGSTOP), or stopped with --stop-idle where memory does not hold them all.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import uvloop

from benchmarks.ledger.postgres_server import PostgresNotFound, private_postgres
from benchmarks.load import machine
from benchmarks.load.arguments import count, counts, positive
from benchmarks.load.bars import bars
from benchmarks.load.loop import Window
from benchmarks.load.report import no_report_on_failure
from benchmarks.load.server import CannotRun
from benchmarks.overhead import comparison, litellm
from benchmarks.overhead.engine import read_engine
from benchmarks.overhead.rounds import Comparison, Runner, Scenario, order
from benchmarks.overhead.sides import BARE, NAMES, Side, Workshop, build

KINDS = ("json", "sse")
BASES = (BARE, "pith")


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.overhead", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )  # fmt: skip
    parser.add_argument("--config", type=Path, default=Path("configs/tiny.yaml"))
    usual = tuple(name for name in NAMES if name not in ("pith-compressing", "pith-before"))
    parser.add_argument(
        "--sides",
        type=_some_of(NAMES),
        default=usual,
        help=f"default: {','.join(usual)}; pith-before needs --before",
    )
    parser.add_argument(
        "--before", type=Path, help="another checkout of pith, measured as the side pith-before"
    )
    parser.add_argument("--kinds", type=_some_of(KINDS), default=KINDS, help="default: json,sse")
    parser.add_argument("--clients", type=counts, default=(1, 16, 64), help="default: 1,16,64")
    parser.add_argument("--projects", type=count, default=1, help="whose keys pith is asked with in turn")
    parser.add_argument("--warm-up", type=positive, default=1.5, help="seconds before each measurement")
    parser.add_argument("--seconds", type=positive, default=5.0, help="of each measurement")
    parser.add_argument("--rounds", type=count, default=3, help="measurements of each, in turns")
    parser.add_argument(
        "--models",
        type=count,
        default=1,
        help="copies of the model kept up by pith and Ray, one of which is asked",
    )
    parser.add_argument("--stop-idle", action="store_true", help="stop idle sides instead of pausing them")
    parser.add_argument("--folder", type=Path, help="for state and logs; default: a temporary one")
    parser.add_argument("--out", type=Path, default=Path("var/bench-overhead"), help="folder for the report")
    return parser.parse_args(words)


def _some_of(names: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        if unknown := [name for name in text.split(",") if name not in names]:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(names)}")
        return tuple(text.split(","))

    return parse


def scenarios(options: argparse.Namespace) -> list[Scenario]:
    return [Scenario(kind == "sse", clients) for kind in options.kinds for clients in options.clients]


def built(
    options: argparse.Namespace, folder: Path, until: ExitStack
) -> tuple[dict[str, Side], dict[str, str]]:
    """The sides, and why some are not among them."""

    @cache
    def database_url() -> str:
        try:
            server = until.enter_context(private_postgres(fsync=True, folder=folder))
        except PostgresNotFound as error:
            raise CannotRun(str(error)) from error
        return f"{server.replace('+asyncpg', '')}/postgres"

    engine = read_engine(options.config, folder / "checkpoints")
    before = options.before and options.before.resolve()
    workshop = Workshop(engine, options.config, folder, before, options.models)
    bare = workshop.bare()
    sides, absent = {}, {}
    for name in options.sides:
        try:
            sides[name] = build(name, workshop, bare, database_url=database_url)
        except CannotRun as error:
            absent[name] = str(error)
    if not sides:
        raise SystemExit(f"--sides: none of them can run here: {absent}")
    return sides, absent


async def measured(options: argparse.Namespace, sides: dict[str, Side], absent: dict[str, str]) -> Comparison:
    """Raises `Failed`."""
    steps = list(order([*sides], scenarios(options), options.rounds, by_side=options.stop_idle))
    window = Window(options.warm_up, options.seconds)
    with bars() as progress:
        task = progress.add_task("", total=len(steps))
        runner = Runner(
            sides, window, options.stop_idle, lambda text: progress.update(task, description=text),
            options.projects, Comparison(absent=dict(absent)),
        )  # fmt: skip
        try:
            return await runner.run(steps, advance=lambda: progress.advance(task))
        finally:
            runner.close()


def main() -> None:
    options, facts = arguments(), machine.facts("benchmarks.overhead")
    theirs = machine.versions(["litellm"], litellm.VENV)
    with no_report_on_failure(), ExitStack() as until:
        own = tempfile.TemporaryDirectory(prefix="pith-overhead-", dir=options.folder)
        folder = Path(until.enter_context(own))
        sides, absent = built(options, folder, until)
        found = uvloop.run(measured(options, sides, absent))
    if not found.runs:
        raise SystemExit(f"nothing to report: no side could run: {found.absent}")
    how = {
        **({"in an environment of its own": ", ".join(theirs)} if theirs else {}),
        "method": f"closed loop, {options.warm_up:g} s of warm-up and {options.seconds:g} s measured, {options.rounds} "
        f"rounds; sides take turns, idle ones are {'stopped' if options.stop_idle else 'paused'}",
    }
    comparison.report(found, scenarios(options), BASES, {**facts, **how}).publish(options.out)


if __name__ == "__main__":
    main()
