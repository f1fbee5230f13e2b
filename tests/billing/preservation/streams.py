"""Simulated streams of chats under control: `python -m tests.billing.preservation.streams --count 1000`.

Each stream has what every chat would lose at every size: a little noise at any of them, and with a probability that
grows as less is kept, and with the difficulty of the chat, a large and long-tailed shift, since the evidence is gone.
The difficulty drifts, and differs by conversation. A share of the chats, drawn by chance, is verified; their results
come late, out of order, and some never. What the control must hold is the mean over all chats of the stream, of which
it sees a few; how much it saves is compared with the best fixed size that holds the bound, known only afterwards.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from math import exp, log
from typing import Annotated, Any

import numpy as np
import typer

from billing.preservation.size_control import SIZES, START, SizeControl, size_of

Numbers = np.ndarray[Any, np.dtype[Any]]
BOUND = 0.05
# By size: how probable the calibration says a loss is, nats a token without one, and the share of tokens that is saved.
LOST = np.array([0.0] + [1 - size for size in SIZES if size is not None])
NOISE = np.array([0.0, 0.002, 0.003, 0.005, 0.008, 0.012])
SAVED = np.array([0.0, 0.5, 0.58, 0.68, 0.75, 0.81])
# Nats a token that are lost with the evidence, in the mean; of no reply more than the most.
HARM, MOST_HARM = 0.4, 12.0
TURNS, CHATS_BETWEEN_TURNS = 6, 30
# Chats between one and its result, in the mean, and the share of results that are given up.
DELAY, GIVEN_UP = 300, 0.1
SHORTEST, LONGEST = 10_000, 100_000


def _still(at: Numbers, rng: np.random.Generator) -> Numbers:
    return np.ones(len(at))


def _step(at: Numbers, rng: np.random.Generator) -> Numbers:
    return np.where(at > rng.uniform(0.2, 0.9), rng.choice([0.25, 0.4, 2.5, 4, 6]), 1.0)


def _ramp(at: Numbers, rng: np.random.Generator) -> Numbers:
    return np.asarray(rng.choice([0.2, 0.33, 3, 5]) ** at)


def _season(at: Numbers, rng: np.random.Generator) -> Numbers:
    swing, times = rng.uniform(0.5, 1.2), rng.uniform(2, 30)
    return np.asarray(np.exp(swing * np.sin(2 * np.pi * (at * times + rng.random()))))


def _harder(at: Numbers, rng: np.random.Generator) -> Numbers:
    """A harder kind of chats comes in bursts, which grow."""
    shares = rng.beta(0.4, 1, size=20) * np.linspace(0.2, 1, 20)
    share = shares[np.minimum(19, (at * 20).astype(int))]
    return np.where(rng.random(len(at)) < share, rng.uniform(3, 8), 0.7)


DRIFTS: Mapping[str, Callable[[Numbers, np.random.Generator], Numbers]] = {
    "none": _still,
    "heavy tails": _still,
    "step": _step,
    "slow ramp": _ramp,
    "seasons": _season,
    "harder mix": _harder,
}


@dataclass(frozen=True, slots=True)
class Stream:
    """By chat: its shift at each size, its conversation, and what that drew."""

    shifts: Numbers
    conversations: Numbers
    drawn: Numbers

    @classmethod
    def of(cls, drift: str, rng: np.random.Generator) -> Stream:
        chats = int(exp(rng.uniform(log(SHORTEST), log(LONGEST))))
        conversations = _conversations(chats, rng)
        own = rng.lognormal(-0.18, 0.6, chats)[conversations]
        difficulty = exp(rng.uniform(log(0.4), log(10))) * own * DRIFTS[drift](np.arange(chats) / chats, rng)
        tail = rng.uniform(1.4, 1.9) if drift == "heavy tails" else rng.uniform(0.6, 1.3)
        harm = np.minimum(MOST_HARM, HARM * rng.lognormal(-tail * tail / 2, tail, chats))
        is_lost = rng.random(chats)[:, None] < np.minimum(1, difficulty[:, None] * LOST)
        noise = (
            NOISE * rng.lognormal(-0.5, 1, chats)[:, None] + (NOISE > 0) * rng.normal(0, 0.01, chats)[:, None]
        )
        return cls(is_lost * harm[:, None] + noise, conversations, rng.random(chats)[conversations])

    def sizes(self, steps: Numbers) -> Numbers:
        """Places on the ladder, chat by chat, where these steps are in use."""
        return np.clip(np.floor(steps + self.drawn), 0, len(SIZES) - 1).astype(int)


def _conversations(chats: int, rng: np.random.Generator) -> Numbers:
    """A number for each chat, in the order of time: conversations begin at any time, and overlap."""
    begins_one = rng.random(chats) < 1 / TURNS
    begins_one[0] = True
    first = np.flatnonzero(begins_one)
    conversation = np.cumsum(begins_one) - 1
    turn = np.arange(chats) - first[conversation]
    at = np.sort(rng.uniform(0, chats, len(first)))[conversation] + turn * CHATS_BETWEEN_TURNS
    return conversation[np.argsort(at, kind="stable")]


@dataclass(frozen=True, slots=True)
class Result:
    """Of one stream. `best` is what the best fixed size saves; `changes` are those of a size within a conversation."""

    shift: float
    saved: float
    best: float
    samples: int
    steps: int
    changes: float

    @property
    def is_broken(self) -> bool:
        return self.shift > BOUND


def controlled(stream: Stream, verify: float, rng: np.random.Generator) -> Result:
    """Run the control over the stream, sample by sample."""
    chats = len(stream.shifts)
    sampled = np.flatnonzero(rng.random(chats) < verify * (1 - GIVEN_UP))
    arrives = sampled + 1 + rng.exponential(DELAY, len(sampled)).astype(int)
    control, since, steps = SizeControl(), [0], [START]
    for index in np.argsort(arrives, kind="stable"):
        chat, arrival = sampled[index], int(arrives[index])
        if arrival >= chats:
            break
        step = steps[bisect_right(since, chat) - 1]
        size = SIZES.index(size_of(step, stream.drawn[chat]))
        control = control.after(float(stream.shifts[chat, size]), BOUND)
        if control.step != steps[-1]:
            since.append(arrival)
            steps.append(control.step)
    sizes = stream.sizes(np.repeat(steps, np.diff([*since, chats])))
    return Result(
        shift=float(stream.shifts[np.arange(chats), sizes].mean()),
        saved=float(SAVED[sizes].mean()),
        best=float(SAVED[stream.shifts.mean(0) <= BOUND].max()),
        samples=control.samples,
        steps=len(steps) - 1,
        changes=_changes(stream.conversations, sizes),
    )


def _changes(conversations: Numbers, sizes: Numbers) -> float:
    """Changes of size between a chat and the one before it of the same conversation, by conversation."""
    order = np.argsort(conversations, kind="stable")
    of, size = conversations[order], sizes[order]
    changed = (of[1:] == of[:-1]) & (size[1:] != size[:-1])
    return float(changed.sum() / (of[-1] + 1))


def run(drift: str, seed: int, verify: float, number: int) -> Result:
    """The stream of this number."""
    rng = np.random.default_rng([seed, number, list(DRIFTS).index(drift)])
    return controlled(Stream.of(drift, rng), verify, rng)


@dataclass(frozen=True, slots=True)
class Summary:
    """Of many streams. Shares are of all streams; savings are sums over them, against those of the best fixed sizes."""

    results: list[Result]

    @property
    def broken(self) -> float:
        return sum(result.is_broken for result in self.results) / len(self.results)

    @property
    def savings(self) -> float:
        return sum(result.saved for result in self.results) / sum(result.best for result in self.results)

    @property
    def within_a_tenth(self) -> float:
        """Of streams, those that save at least nine tenths of what their own best fixed size does."""
        return sum(result.saved >= 0.9 * result.best for result in self.results) / len(self.results)

    def mean(self, name: str) -> float:
        return sum(getattr(result, name) for result in self.results) / len(self.results)


COLUMNS = (
    "drift",
    "bound broken",
    "savings of the best fixed sizes'",
    "streams within a tenth of it",
    "mean shift",
    "samples",
    "steps",
    "changes a conversation",
)


def main(
    count: Annotated[int, typer.Option(min=1, help="Streams of each drift.")] = 200,
    seed: int = 1,
    verify: Annotated[float, typer.Option(min=0.001, max=1)] = 0.05,
    processes: int = 2,
) -> None:
    """Simulate streams of chats whose size is under control."""
    print(f"{count} streams of each drift, seed {seed}, verify {verify:g}, within {BOUND:g}")
    print(f"| {' | '.join(COLUMNS)} |\n|---|{'---:|' * (len(COLUMNS) - 1)}")
    everything: list[Result] = []
    with ProcessPoolExecutor(processes) as pool:
        for drift in DRIFTS:
            found = list(pool.map(partial(run, drift, seed, verify), range(count), chunksize=4))
            everything += found
            print(_row(drift, Summary(found)), flush=True)
    print(_row("all", Summary(everything)))


def _row(name: str, found: Summary) -> str:
    shares = " | ".join(
        f"{100 * value:.1f}%" for value in (found.broken, found.savings, found.within_a_tenth)
    )
    means = f"{found.mean('shift'):.4f} | {found.mean('samples'):,.0f} | {found.mean('steps'):.0f}"
    return f"| {name} | {shares} | {means} | {found.mean('changes'):.3f} |"


if __name__ == "__main__":
    typer.run(main)
