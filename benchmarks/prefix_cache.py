"""Saving of routing by prefix with several replicas: `python -m benchmarks.prefix_cache --replicas 2`.

Two servers of the same configuration take turns: one sends a prompt where its beginning is cached, one takes its
replicas in turn. Conversations about a document of their own go on for some turns, each turn a longer prompt. The
hit rate is of prompt tokens, as the server's metrics count them.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

import aiohttp
import orjson
import uvloop
import yaml

from benchmarks.load import machine, plots
from benchmarks.load.arguments import count
from benchmarks.load.bars import bars
from benchmarks.load.exchange import Call, Clock, completion, exchange
from benchmarks.load.report import Report, no_report_on_failure, spans, table
from benchmarks.load.sample import Sample
from benchmarks.load.server import Server, pith_server
from benchmarks.load.text import made_up
from benchmarks.overhead.comparison import spread

ROUTINGS = ("prefix_cache", "round_robin")
HEAD = ("routing", "hit rate", "TTFT p50 / p99 ms", "turns/s")
TOKENS = 8
PROMPT, CACHED = "pith_chat_prompt_tokens_total", "pith_chat_cached_tokens_total"
ANSWER = "The committee chose Lisbon in 1932, and the ferry was painted by Marta."


@dataclass(slots=True)
class Round:
    """What one server did with the same conversations."""

    prompt_tokens: float
    cached_tokens: float
    seconds: float
    samples: list[Sample]

    @property
    def hit_rate(self) -> float:
        return self.cached_tokens / self.prompt_tokens

    @property
    def ttft_ms(self) -> float:
        return statistics.median(sample.ttft_ms or 0.0 for sample in self.samples)


@dataclass(slots=True)
class Found:
    rounds: dict[str, list[Round]] = field(default_factory=lambda: {name: [] for name in ROUTINGS})


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.prefix_cache",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", type=Path, default=Path("configs/embedded.yaml"))
    parser.add_argument("--replicas", type=count, default=2)
    parser.add_argument("--conversations", type=count, default=24)
    parser.add_argument("--turns", type=count, default=4)
    parser.add_argument("--clients", type=count, default=8)
    parser.add_argument(
        "--characters", type=count, default=3000, help="of the document that a conversation is about"
    )
    parser.add_argument("--rounds", type=count, default=3)
    parser.add_argument(
        "--out", type=Path, default=Path("var/bench-prefix-cache"), help="folder for the report"
    )
    return parser.parse_args(words)


def config_with(config: Path, folder: Path, *, routing: str, replicas: int) -> tuple[Path, str]:
    """A copy whose first model has so many replicas, routed so; and that model's id."""
    settings = yaml.safe_load(config.read_text(encoding="utf-8"))
    model = settings["models"][0]
    model["replicas"] = {**model.get("replicas", {}), "min": replicas, "max": replicas, "routing": routing}
    path = folder / f"{routing}.yaml"
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return path, model["id"]


def conversation(model: str, document: str, turns: int) -> list[bytes]:
    """The bodies of its turns: each has all that was said before."""
    messages = [{"role": "user", "content": f"{document}\nWhat is this about?"}]
    bodies = []
    for turn in range(turns):
        body = {
            "model": model,
            "messages": messages,
            "max_tokens": TOKENS,
            "temperature": 0,
            "ignore_eos": True,
        }
        bodies.append(orjson.dumps({**body, "stream": True, "stream_options": {"include_usage": True}}))
        messages = [*messages, {"role": "assistant", "content": ANSWER},
                    {"role": "user", "content": f"And what of the {turn + 2}. matter?"}]  # fmt: skip
    return bodies


async def counted(session: aiohttp.ClientSession, url: str) -> dict[str, float]:
    """Prompt tokens, and those of them that were cached, since the server began."""
    async with session.get(url) as response:
        lines = (await response.text()).splitlines()
    return {name: sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name + "{"))
            for name in (PROMPT, CACHED)}  # fmt: skip


async def converse(
    server: Server, conversations: Sequence[list[bytes]], clients: int, on_done: Callable[[], None]
) -> Round:
    """All conversations, so many at a time. Raises `Failed`."""
    call = Call("/v1/chat/completions", (), True, completion, TOKENS)
    waiting, samples = list(reversed(conversations)), list[Sample]()
    async with server.target.session() as session, aiohttp.ClientSession() as metrics:
        before, clock = await counted(metrics, server.metrics_url), Clock(time.perf_counter())

        async def client() -> None:
            while waiting:
                for body in waiting.pop():
                    samples.append(await exchange(session, call, body, clock=clock, due_s=clock.now()))
                    on_done()

        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(client())
        seconds, after = clock.now(), await counted(metrics, server.metrics_url)
    prompt, cached = (after[name] - before[name] for name in (PROMPT, CACHED))
    return Round(prompt, cached, seconds, samples)


async def run(options: argparse.Namespace, folder: Path, until: ExitStack) -> Found:
    """Raises `Failed` and `CannotRun`."""
    servers, found = {}, Found()
    for routing in ROUTINGS:
        own = folder / routing
        own.mkdir()
        config, model = config_with(options.config, folder, routing=routing, replicas=options.replicas)
        servers[routing] = pith_server(config, own, model)
        until.callback(servers[routing].stop)
        await servers[routing].start()
        servers[routing].pause()
    total = options.rounds * len(ROUTINGS) * options.conversations * options.turns
    with bars() as progress:
        task = progress.add_task("turns", total=total)
        for number in range(options.rounds):
            documents = [
                made_up(options.characters, seed=number * options.conversations + each)
                for each in range(options.conversations)
            ]
            for routing in ROUTINGS if number % 2 else reversed(ROUTINGS):
                server = servers[routing]
                server.resume()
                bodies = [conversation(server.model, document, options.turns) for document in documents]
                found.rounds[routing].append(
                    await converse(server, bodies, options.clients, lambda: progress.advance(task))
                )
                server.pause()
    return found


def report(options: argparse.Namespace, facts: machine.Facts, found: Found) -> Report:
    rows = [
        [routing, spread([one.hit_rate for one in rounds]),
         spans([sample.ttft_ms or 0.0 for one in rounds for sample in one.samples]),
         spread([len(one.samples) / one.seconds for one in rounds], 1)]
        for routing, rounds in found.rounds.items()
    ]  # fmt: skip
    ours, theirs = (found.rounds[name] for name in ROUTINGS)
    pairs = list(zip(ours, theirs, strict=True))
    lines = [
        f"{options.conversations} conversations of {options.turns} turns about documents of {options.characters:,} "
        f"characters, {options.clients} at a time, on {options.replicas} replicas; {options.rounds} rounds in turns. "
        f"With every prompt on the replica that had the one before, a conversation misses its first turn only.", "",
        *table(HEAD, rows), "",
        f"TTFT p50 by prefix over in turn: {spread([a.ttft_ms / b.ttft_ms for a, b in pairs])}; "
        f"turns/s: {spread([b.seconds / a.seconds for a, b in pairs])}.",
    ]  # fmt: skip
    times = plots.distribution(
        "time to first token", "ms",
        {routing: [sample.ttft_ms or 0.0 for one in rounds for sample in one.samples]
         for routing, rounds in found.rounds.items()},
    )  # fmt: skip
    pictures = {"prefix-cache": picture(rows, [times])}
    return Report("prefix-cache", "Routing by prefix", facts, lines, asdict(found), pictures)


def picture(rows: Sequence[Sequence[str]], more: Sequence[plots.Panel] = ()) -> plots.Picture:
    """Of the table's rows: the routing, hit rate, TTFT and turns/s."""
    names = [row[0] for row in rows]
    hits, ttft, turns = ([figures_of(row[column]) for row in rows] for column in (1, 2, 3))
    panels = [
        plots.Panel("prompt tokens found in the cache", "share", "", spreads(hits), continuous_x=True, rows=names),
        plots.Panel("time to first token", "ms", "", percentiles(ttft), continuous_x=True, rows=names),
        plots.Panel("throughput", "turns/s", "", spreads(turns), continuous_x=True, rows=names),
    ]  # fmt: skip
    found = {name: f"{100 * middle:.0f}%" for name, (middle, *_) in zip(names, hits, strict=True)}
    return plots.Picture(
        f"Routing by prefix finds {found['prefix_cache']} of prompt tokens in the cache, "
        f"taking replicas in turn {found['round_robin']}",
        [*panels, *more],
    )


def figures_of(cell: str) -> list[float]:
    return [float(figure) for figure in re.findall(r"[0-9.]+", cell)]


def percentiles(values: Sequence[Sequence[float]]) -> dict[str, plots.Points]:
    return {
        name: [(each[at], row) for row, each in enumerate(values)] for at, name in enumerate(("p50", "p99"))
    }


def spreads(values: Sequence[Sequence[float]]) -> dict[str, plots.Points]:
    """Each: the median of the rounds, the least and the greatest."""
    return {
        "median of the rounds": [(middle, at) for at, (middle, _, _) in enumerate(values)],
        "least and greatest": [(end, at) for at, (_, *ends) in enumerate(values) for end in ends],
    }


def main() -> None:
    options, facts = arguments(), machine.facts("benchmarks.prefix_cache")
    with ExitStack() as until, no_report_on_failure():
        folder = Path(until.enter_context(tempfile.TemporaryDirectory(prefix="pith-prefix-")))
        found = uvloop.run(run(options, folder, until))
    report(options, facts, found).publish(options.out)


if __name__ == "__main__":
    main()
