"""The order of a comparison: every side under the same load one after another, in another order each round."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from benchmarks.load.exchange import Call, Failed, chat
from benchmarks.load.loop import Closed, Window, measure
from benchmarks.load.processes import Cpu
from benchmarks.load.sample import Run
from benchmarks.load.server import CannotRun
from benchmarks.overhead.sides import Side

JSON_TOKENS = 16
SSE_TOKENS = 64


@dataclass(frozen=True, slots=True)
class Scenario:
    """One line of the report."""

    stream: bool
    clients: int

    def __str__(self) -> str:
        what = f"SSE, {SSE_TOKENS} tokens" if self.stream else f"JSON, {JSON_TOKENS} tokens"
        return f"{what}, {self.clients} client{'s' if self.clients > 1 else ''}"

    def call(self, model: str) -> Call:
        return chat(model, tokens=SSE_TOKENS if self.stream else JSON_TOKENS, stream=self.stream)


@dataclass(slots=True)
class Comparison:
    """What was measured: `runs[side][scenario]` has one run a round. `absent` says why a side has none."""

    runs: dict[str, dict[Scenario, list[Run]]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)


def order(
    sides: Sequence[str], scenarios: Sequence[Scenario], rounds: int, *, by_side: bool
) -> Iterator[tuple[str, Scenario]]:
    """Side by side within each scenario; `by_side`: all scenarios of a side at once, where starting one is dear."""
    for number in range(rounds):
        first = number % len(sides)
        turned = [*sides[first:], *sides[:first]]
        if by_side:
            yield from ((side, scenario) for side in turned for scenario in scenarios)
        else:
            yield from ((side, scenario) for scenario in scenarios for side in turned)


@dataclass(slots=True)
class Runner:
    """Brings one side up at a time. Idle sides are paused, or stopped where memory does not hold them all."""

    sides: dict[str, Side]
    window: Window
    stop_idle: bool
    tell: Callable[[str], None]
    projects: int = 1
    result: Comparison = field(default_factory=Comparison)
    current: Side | None = None

    async def run(self, steps: Sequence[tuple[str, Scenario]], *, advance: Callable[[], None]) -> Comparison:
        """Raises `Failed` when a side fails under load: a comparison without it would flatter the others."""
        for name, scenario in steps:
            if name not in self.result.absent:
                await self._step(name, scenario)
            advance()
        return self.result

    async def _step(self, name: str, scenario: Scenario) -> None:
        side = self.sides[name]
        self.tell(f"{side.name}: {scenario}")
        try:
            await self._switch_to(side)
        except CannotRun as error:
            if side.name in self.result.runs:
                raise Failed(f"{side.name} ran, and then did not: {error}") from error
            self.result.absent[name] = str(error)
            side.park(stop=True)
            self.current = None
            return
        call = scenario.call(side.front.model)
        try:
            target = side.front.target_of(self.projects)
            run = await measure(target, call, Closed(scenario.clients), self.window, cpu=Cpu(side.processes))
        except Failed as error:
            raise Failed(f"{side.name}, {scenario}: {error}") from error
        self.result.runs.setdefault(side.name, {}).setdefault(scenario, []).append(run)

    async def _switch_to(self, side: Side) -> None:
        if self.current is side:
            return
        if self.current is not None:
            self.current.park(stop=self.stop_idle)
        self.current = side
        await side.bring()

    def close(self) -> None:
        for side in self.sides.values():
            side.park(stop=True)
