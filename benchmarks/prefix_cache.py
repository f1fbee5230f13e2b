"""Choice of replicas by their caches, on replayed sessions of agents: `python -m benchmarks.prefix_cache`.

One server after another has the same sessions: pith with its replicas chosen by what they have cached, and in turn;
one replica with a cache as large as all of theirs, which is the most that can be found; and Ray Serve LLM with its own
prefix-aware router. The hit rate is of prompt tokens, as each server's replies say it.

Sessions are made up, or read from a file (`--data`): each turn has all that was said before, and the recorded reply
follows whatever the model has said.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson
import psutil
import uvloop
import yaml

from benchmarks.load import machine, plots
from benchmarks.load.agent_sessions import Message, Replay, invented, recorded
from benchmarks.load.arguments import count
from benchmarks.load.bars import bars
from benchmarks.load.exchange import Call, Clock, exchange
from benchmarks.load.report import Report, no_report_on_failure, spans, table
from benchmarks.load.sample import Figures, Sample
from benchmarks.load.server import Server, pith_server
from benchmarks.overhead.engine import read_engine
from benchmarks.overhead.sides import Workshop, require_memory

Sessions = Sequence[Sequence[list[Message]]]
BIG = "one_big_cache"
SIDES = ("prefix_cache", BIG, "ray_prefix_aware", "round_robin")
HEAD = ("routing", "hit rate", "of one big cache's", "TTFT p50 / p99 ms", "turns/s")
TOKENS = 8
BLOCK_TOKENS = 32
START_S = 600.0
# Of a replica on CPUs with a small model, and of all else that runs.
REPLICA_GIB, REST_GIB = 2.3, 2.0


@dataclass(slots=True)
class Round:
    """What one server did with the sessions. Memory is the proportional set of all its processes."""

    seconds: float
    samples: list[Sample]
    memory_mib: float = 0.0

    @property
    def hit_rate(self) -> float:
        figures = [sample.figures for sample in self.samples]
        return sum(each.cached_tokens for each in figures) / sum(each.prompt_tokens for each in figures)


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.prefix_cache",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", type=Path, default=Path("configs/tiny.yaml"))
    parser.add_argument("--sides", type=lambda names: names.split(","), default=list(SIDES))
    parser.add_argument("--replicas", type=count, default=4)
    parser.add_argument("--cache-tokens", type=count, default=24_576, help="that each replica's cache holds")
    parser.add_argument("--data", type=Path, help="JSON lines of recorded sessions; absent: they are made up")
    parser.add_argument("--sessions", type=count, default=40)
    parser.add_argument("--turns", type=count, default=12, help="of a made-up session, about")
    parser.add_argument("--live", type=count, default=24, help="sessions that are under way at once")
    parser.add_argument("--clients", type=count, default=8, help="turns that are waited for at once")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--out", type=Path, default=Path("var/bench-prefix-cache"), help="folder for the report"
    )
    options = parser.parse_args(words)
    if unknown := set(options.sides) - set(SIDES):
        parser.error(f"--sides: {', '.join(sorted(unknown))}; there are {', '.join(SIDES)}")
    if options.data is not None and not options.data.is_file():
        parser.error(f"--data: there is no file {options.data}")
    return options


def config_with(
    config: Path, folder: Path, *, routing: str, replicas: int, cache_tokens: int
) -> tuple[Path, str]:
    """A copy whose first model has so many replicas, each with such a cache, routed so; and that model's id."""
    settings = yaml.safe_load(config.read_text(encoding="utf-8"))
    model = settings["models"][0]
    model["replicas"] = {**model.get("replicas", {}), "min": replicas, "max": replicas, "routing": routing}
    engine = {**model.get("engine", {}), "block_size": BLOCK_TOKENS}
    engine["args"] = {**engine.get("args", {}), "num_gpu_blocks_override": cache_tokens // BLOCK_TOKENS}
    model["engine"] = engine
    path = folder / "configured.yaml"
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return path, model["id"]


def server_of(side: str, options: argparse.Namespace, folder: Path) -> Server:
    """The server of a side, not started. Raises `CannotRun`."""
    replicas, cache_tokens = options.replicas, options.cache_tokens
    if side == BIG:
        replicas, cache_tokens = 1, replicas * cache_tokens
    require_memory(side, REST_GIB + REPLICA_GIB * replicas)
    routing = "round_robin" if side == "round_robin" else "prefix_cache"
    config, model = config_with(
        options.config, folder, routing=routing, replicas=replicas, cache_tokens=cache_tokens
    )
    if side == "ray_prefix_aware":
        engine = read_engine(config, folder / "checkpoints")
        telling = {**engine.arguments, "enable_prompt_tokens_details": True}
        workshop = Workshop(
            type(engine)(model, engine.checkpoint, telling, engine.environment), config, folder
        )
        server = workshop.ray("ray", {}, "--replicas", str(replicas), "--prefix-aware")
    else:
        server = pith_server(config, folder, model)
    server.start_s = START_S
    return server


def body_of(model: str, messages: list[Message]) -> bytes:
    return orjson.dumps(
        {
            "model": model,
            "messages": messages,
            "max_tokens": TOKENS,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    )


def figures_of(reply: Mapping[str, Any]) -> Figures:
    usage = reply["usage"]
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    return Figures(
        int(usage["completion_tokens"]), prompt_tokens=int(usage["prompt_tokens"]), cached_tokens=int(cached)
    )


async def replay(
    server: Server, sessions: Sessions, options: argparse.Namespace, on_done: Callable[[], None]
) -> Round:
    """All sessions. Raises `Failed`."""
    call = Call("/v1/chat/completions", (), True, figures_of, TOKENS)
    turns, samples = Replay(sessions, options.live, options.seed), list[Sample]()
    async with server.target.session() as http:
        clock = Clock(time.perf_counter())

        async def client() -> None:
            while (given := turns.next()) is not None:
                session, messages = given
                body = body_of(server.model, messages)
                samples.append(await exchange(http, call, body, clock=clock, due_s=clock.now()))
                turns.answered(session)
                on_done()

        async with asyncio.TaskGroup() as group:
            for _ in range(options.clients):
                group.create_task(client())
    return Round(clock.now(), samples, memory_mib(server.processes()))


def memory_mib(processes: Sequence[psutil.Process]) -> float:
    held = 0
    for process in processes:
        try:
            held += process.memory_full_info().pss
        except psutil.NoSuchProcess:
            continue
    return held / 2**20


async def run(options: argparse.Namespace, sessions: Sessions, folder: Path) -> dict[str, Round]:
    """Raises `Failed` and `CannotRun`."""
    found = {}
    with bars() as progress:
        task = progress.add_task("turns", total=len(options.sides) * sum(map(len, sessions)))
        for side in options.sides:
            own = folder / side
            own.mkdir()
            server = server_of(side, options, own)
            try:
                await server.start()
                found[side] = await replay(server, sessions, options, lambda: progress.advance(task))
            finally:
                server.stop()
    return found


def sessions_of(options: argparse.Namespace) -> Sessions:
    if options.data is None:
        return invented(options.sessions, options.turns, options.seed)
    return recorded(options.data, options.sessions, options.seed)


def report(
    options: argparse.Namespace, facts: machine.Facts, sessions: Sessions, found: Mapping[str, Round]
) -> Report:
    most = found[BIG].hit_rate if BIG in found else None
    rows = [
        [side, f"{one.hit_rate:.3f}", f"{one.hit_rate / most:.3f}" if most else "",
         spans([sample.ttft_ms or 0.0 for sample in one.samples]), f"{len(one.samples) / one.seconds:.1f}"]
        for side, one in found.items()
    ]  # fmt: skip
    lines = [
        *told(options, sessions, found), "", *table(HEAD, rows), "",
        "Memory at the end, MiB: " + ", ".join(f"{side} {one.memory_mib:,.0f}" for side, one in found.items()) + ".",
    ]  # fmt: skip
    times = plots.distribution(
        "time to first token", "ms",
        {side: [sample.ttft_ms or 0.0 for sample in one.samples] for side, one in found.items()},
    )  # fmt: skip
    measured = {side: asdict(one) for side, one in found.items()}
    return Report(
        "prefix-cache", "Routing by caches", facts, lines, measured, {"prefix-cache": picture(rows, [times])}
    )


def told(options: argparse.Namespace, sessions: Sessions, found: Mapping[str, Round]) -> list[str]:
    """What was replayed, and on what."""
    prompts = [sample.figures.prompt_tokens for one in found.values() for sample in one.samples]
    return [
        f"{len(sessions)} sessions of {options.data.name if options.data else 'made-up text'}, "
        f"{sum(map(len, sessions)):,} turns of {statistics.median(prompts):,.0f} prompt tokens (median; "
        f"{max(prompts):,} at most); {options.live} sessions under way, {options.clients} turns at a time.",
        f"{options.replicas} replicas with a cache of {options.cache_tokens:,} tokens each, and one with "
        f"{options.replicas * options.cache_tokens:,}.",
    ]


def picture(rows: Sequence[Sequence[str]], more: Sequence[plots.Panel] = ()) -> plots.Picture:
    """Of the table's rows, as `HEAD` names them."""
    names = [row[0] for row in rows]
    hits, ttft, turns = ([figures_in(row[column]) for row in rows] for column in (1, 3, 4))
    panels = [
        plots.Panel("prompt tokens cached", "share", "", points(hits, ["hit rate"]), continuous_x=True, rows=names),
        plots.Panel("time to first token", "ms", "", points(ttft, ["p50", "p99"]), continuous_x=True, rows=names),
        plots.Panel("throughput", "turns/s", "", points(turns, ["turns/s"]), continuous_x=True, rows=names),
    ]  # fmt: skip
    said = ", ".join(f"{name} {100 * hit:.0f}%" for name, (hit, *_) in zip(names, hits, strict=True))
    return plots.Picture(f"Prompt tokens found in the cache: {said}", [*panels, *more])


def figures_in(cell: str) -> list[float]:
    return [float(figure) for figure in re.findall(r"[0-9.]+", cell.replace(",", ""))]


def points(values: Sequence[Sequence[float]], names: Sequence[str]) -> dict[str, plots.Points]:
    return {name: [(each[at], row) for row, each in enumerate(values)] for at, name in enumerate(names)}


def main() -> None:
    options, facts = arguments(), machine.facts("benchmarks.prefix_cache")
    sessions = sessions_of(options)
    with ExitStack() as until, no_report_on_failure():
        folder = Path(until.enter_context(tempfile.TemporaryDirectory(prefix="pith-prefix-")))
        found = uvloop.run(run(options, sessions, folder))
    report(options, facts, sessions, found).publish(options.out)


if __name__ == "__main__":
    main()
