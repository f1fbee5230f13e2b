"""The parts of the measurement, each on a server of its own that has one list of prices."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.load.bars import bars
from benchmarks.load.loop import Target
from benchmarks.load.server import Server, pith_server
from benchmarks.savings import idle, kept, passages
from benchmarks.savings.compressing import Compressor
from benchmarks.savings.conversation import Conversation, conversations
from benchmarks.savings.measured import Measured, key
from benchmarks.savings.prices import SCENARIOS, config_with
from benchmarks.savings.replay import SETTINGS, WHOLE, Bodies, Session, replay_all, targets
from benchmarks.savings.reply import body_of

WITH_SYSTEM, WITHOUT_SYSTEM = "as sent", "without system"
PARTS = ("sessions", "questions", "idle")
# The prices under which everything but bills is measured.
FIRST = next(iter(SCENARIOS))


@dataclass(slots=True)
class Measuring:
    """One server and what is asked of it. `tell` says what has begun, of how many steps, and gives what counts one."""

    options: argparse.Namespace
    server: Server
    model: str
    prices: str
    to: Mapping[str, Target]
    tell: Callable[[str, int], Callable[[], None]]

    def alike(self, bodies: Sequence[bytes]) -> Bodies:
        return dict.fromkeys(SETTINGS, bodies)

    async def sessions(self, found: Measured, messages: str) -> None:
        """Raises `Failed` and `CannotRun`."""
        is_first = self.prices == FIRST and messages == WITHOUT_SYSTEM
        every = conversations(self.options.data, self.options.sessions if is_first else self.options.fewer)
        if messages == WITHOUT_SYSTEM:
            every = [each.without_system() for each in every]
        bodies = [[body_of(self.model, request) for request in each.requests()] for each in every]
        advance = self.tell(f"sessions {messages}, {self.prices}", len(every))
        pairs = [(each.task, self.alike(some)) for each, some in zip(every, bodies, strict=True)]
        sessions = await replay_all(pairs, self.to, advance)
        found.sessions[key(self.prices, messages)] = sessions
        if is_first:
            await self._values(found, every, sessions)

    async def _values(
        self, found: Measured, every: Sequence[Conversation], sessions: Sequence[Session]
    ) -> None:
        for side, size in SETTINGS.items():
            if size:
                advance = self.tell(f"values kept at {side}", len(every))
                some = found.kept[key("sessions", side)] = []
                async with self.to[WHOLE].session() as http:
                    compressor = Compressor(http, size)
                    for each, session in zip(every, sessions, strict=True):
                        some += await kept.of_session(each, session.replies[side], compressor)
                        advance()

    async def questions(self, found: Measured, shape: str) -> None:
        """Raises `Failed` and `CannotRun`."""
        cases = passages.cases(self.options.data, shape, self.options.questions)
        advance = self.tell(f"questions, {shape}", len(cases))
        marked, plain = (
            [[body_of(self.model, passages.messages(case, shape, marked=mark))] for case in cases]
            for mark in (True, False)
        )
        bodies = [
            (case.name, {side: other if side == WHOLE else one for side in SETTINGS})
            for case, one, other in zip(cases, marked, plain, strict=True)
        ]
        sessions = found.questions[shape] = await replay_all(bodies, self.to, advance)
        for side, size in SETTINGS.items():
            if size:
                advance = self.tell(f"answers kept at {side}, {shape}", len(cases))
                some = found.kept[key(shape, side)] = []
                async with self.to[WHOLE].session() as http:
                    compressor = Compressor(http, size)
                    for case, session in zip(cases, sessions, strict=True):
                        messages = passages.messages(case, shape, marked=True)
                        reply = session.replies[side][0]
                        some.append(await kept.of_question(case, messages, reply, compressor))
                        advance()

    async def idle(self, found: Measured) -> None:
        """Raises `Failed` and `CannotRun`."""
        whole, default, *_ = self.to.values()
        advance = self.tell("nothing to compress", self.options.pairs)
        found.idle = await idle.alternate(self.model, whole, default, self.options.pairs, advance)


@asynccontextmanager
async def started(options: argparse.Namespace, prices: str) -> AsyncIterator[Measuring]:
    """A server with these prices, stopped in the end. Raises `CannotRun`."""
    async with AsyncExitStack() as until:
        folder = Path(until.enter_context(tempfile.TemporaryDirectory(prefix="pith-savings-")))
        config, model = config_with(options.config, folder, prices, block_size=options.block_size)
        own = folder / "server"
        own.mkdir()
        server = pith_server(config, own, model)
        until.callback(server.stop)
        await server.start()
        progress = until.enter_context(bars())

        def tell(what: str, steps: int) -> Callable[[], None]:
            task = progress.add_task(what, total=steps)
            return lambda: progress.advance(task)

        yield Measuring(options, server, model, prices, targets(server), tell)


async def measure(options: argparse.Namespace) -> Measured:
    """The parts that the options name, under the prices that they name. Raises `Failed` and `CannotRun`."""
    found = Measured()
    for prices in options.prices:
        async with started(options, prices) as measuring:
            if "sessions" in options.parts:
                await measuring.sessions(found, WITHOUT_SYSTEM)
            if prices == FIRST:
                await _the_rest(options, measuring, found)
    return found


async def _the_rest(options: argparse.Namespace, measuring: Measuring, found: Measured) -> None:
    """What other prices would not change, or not otherwise."""
    if "questions" in options.parts:
        for shape in passages.SHAPES:
            await measuring.questions(found, shape)
    if "idle" in options.parts:
        await measuring.idle(found)
    if "sessions" in options.parts and not options.without_system:
        await measuring.sessions(found, WITH_SYSTEM)
