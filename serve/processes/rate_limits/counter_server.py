"""Counts rate limits for every HTTP process of a server, so that together they let in exactly the limit."""

import asyncio
import logging

from billing.rate_limits.counters import Ask, Counters
from serve.processes.rate_limits.wire import ANSWERED, ASKED, Answered, Asked, framed, read_frame

logger = logging.getLogger("pith.limits")


class CountersServer:
    """Answers one connection per process. What a process has in flight ends with its connection."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        in_flight: dict[str, Ask] = {}
        try:
            while True:
                asked = ASKED.validate_json(await read_frame(reader))
                answered = await self._answered(asked, in_flight)
                writer.write(framed(ANSWERED.dump_json(answered)))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            # The process has ended.
            pass
        except ValueError as error:
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
