"""Rate limits counted in one process for every HTTP process of a server: client, server, and what they say.

A message is a line of JSON, of at most the 64 KiB that asyncio reads as one; a project's name is its longest part.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from billing.errors import LimitsUnavailable
from billing.ledger.rate_counters import LedgerCounters
from billing.rate_limits.counters import Answer, Ask, CountedLimit, Counters
from billing.rate_limits.rate_limits import RateLimits, open_counters
from billing.store.database import Database
from serve.config.billing import IN_MEMORY
from serve.config.settings import Settings

TIMEOUT_S = 2.0
logger = logging.getLogger("pith.limits")


@dataclass(frozen=True, slots=True)
class Asked:
    """`take`; or `ticket`, and what to give back of its request. The reply has the same number."""

    number: int
    take: Ask | None = None
    ticket: str | None = None
    unused: dict[CountedLimit, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answered:
    number: int
    answer: Answer | None = None


ASKED = TypeAdapter(Asked)
ANSWERED = TypeAdapter(Answered)
# A line that is no message, or is too long for one.
UNREADABLE = (ValueError, asyncio.LimitOverrunError)


class SharedCounters:
    """One connection, on which each call is a line and answers come in order. Connects on first use."""

    def __init__(self, path: Path, *, timeout_s: float = TIMEOUT_S) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._numbers = itertools.count()
        self._connecting = asyncio.Lock()
        self._line: _Line | None = None

    async def take(self, ask: Ask) -> Answer:
        line = await self._connected()
        try:
            answered = await self._answer(line, Asked(next(self._numbers), take=ask))
        except (asyncio.CancelledError, LimitsUnavailable):
            # It may have been counted, and only this call knows. This uses the same connection, so it arrives after it.
            unused = {charge.kind: charge.amount for charge in ask.charges}
            line.forget(Asked(next(self._numbers), ticket=ask.ticket, unused=unused))
            raise
        assert answered.answer is not None
        return answered.answer

    async def give_back(self, ask: Ask, unused: Mapping[CountedLimit, int]) -> None:
        line = self._line
        if line is None or line.is_lost:
            # What a process had in flight ended with its connection.
            logger.warning(
                "unused tokens of project %s are still counted: the connection was lost", ask.project_id
            )
            return
        await self._answer(line, Asked(next(self._numbers), ticket=ask.ticket, unused=dict(unused)))

    async def close(self) -> None:
        if self._line is not None:
            await self._line.close()

    async def _connected(self) -> _Line:
        async with self._connecting:
            if self._line is None or self._line.is_lost:
                try:
                    async with asyncio.timeout(self._timeout_s):
                        self._line = _Line(*await asyncio.open_unix_connection(self._path))
                except OSError as error:
                    raise _unavailable(error) from error
        return self._line

    async def _answer(self, line: _Line, asked: Asked) -> Answered:
        # Sent before the first await: a call that is cancelled from here on has been sent.
        answer = line.send(asked)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await answer
        except OSError as error:
            raise _unavailable(error) from error


class _Line:
    """One connection, and the calls on it that wait for their answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._waiting: dict[int, asyncio.Future[Answered]] = {}
        self.is_lost = False
        self._reading = asyncio.create_task(self._read(reader))

    def send(self, asked: Asked) -> asyncio.Future[Answered]:
        """The future answer; a `ConnectionError` if the connection is lost."""
        answer: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        if self.is_lost:
            answer.set_exception(ConnectionResetError("the connection was lost"))
            return answer
        self._waiting[asked.number] = answer
        self._writer.write(ASKED.dump_json(asked) + b"\n")
        return answer

    def forget(self, asked: Asked) -> None:
        """Send without waiting for an answer."""
        if not self.is_lost:
            self._writer.write(ASKED.dump_json(asked) + b"\n")

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                answered = ANSWERED.validate_json(await reader.readuntil())
                waiting = self._waiting.pop(answered.number, None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(answered)
        except (*UNREADABLE, asyncio.IncompleteReadError, OSError) as error:
            logger.error("the connection to the rate-limit counter was lost: %s", error)
        finally:
            self._lose()

    def _lose(self) -> None:
        self.is_lost = True
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(ConnectionResetError("the connection was lost"))
                # The caller may have left: asyncio would log an exception that was never retrieved.
                answer.exception()
        self._waiting.clear()
        self._writer.close()


def _unavailable(error: OSError) -> LimitsUnavailable:
    logger.warning("the rate-limit counter did not answer: %s: %s", type(error).__name__, error)
    return LimitsUnavailable("the rate-limit storage is unavailable")


class CountersServer:
    """Answers one connection per process. What a process has in flight ends with its connection."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        in_flight: dict[str, Ask] = {}
        try:
            while True:
                asked = ASKED.validate_json(await reader.readuntil())
                answered = await self._answered(asked, in_flight)
                writer.write(ANSWERED.dump_json(answered) + b"\n")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            # The process has ended.
            pass
        except UNREADABLE as error:
            logger.error("cannot read a rate-limit request of an HTTP process: %s", error)
        finally:
            for ask in in_flight.values():
                # It is unknown how much those requests used: their tokens are still counted.
                await self._counters.give_back(ask, {})
            writer.close()

    async def _answered(self, asked: Asked, in_flight: dict[str, Ask]) -> Answered:
        if asked.take is not None:
            answer = await self._counters.take(asked.take)
            if answer.granted:
                in_flight[asked.take.ticket] = asked.take
            return Answered(asked.number, answer)
        # A request that was refused, or was given back already, has nothing to give.
        ask = in_flight.pop(asked.ticket or "", None)
        if ask is not None:
            await self._counters.give_back(ask, asked.unused)
        return Answered(asked.number)


def open_limiter(settings: Settings, database: Database, socket: Path | None = None) -> RateLimits:
    """The rate limits, counted where the settings say: `memory://` at the coordinator's socket, if any; those by hour
    and day in the ledger."""
    storage = settings.billing.rate_limit_storage
    counters = SharedCounters(socket) if socket and storage == IN_MEMORY else open_counters(storage)
    longer, on_outage = LedgerCounters(database), settings.billing.rate_limit_outage
    return RateLimits(counters, longer=longer, on_outage=on_outage)
