"""The end of HTTP processes whose successors run: they take no more connections, and end when the last request has."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from serve.cluster.ray_insides.ray_serve import Everyone
from serve.config.server_settings import ServerSettings

POLL_S = 0.5
ANSWER_S = 10.0
# Beyond what any request and any silent connection may take.
SETTLE_S = 30.0
# How many connections may still ask something, and how many have a request that runs.
Left = tuple[int, int]
logger = logging.getLogger("pith.reload")


class Retiring:
    """The HTTP processes of one application. `ask` has each of them retire, however often it is called, and returns
    what is `Left` in each."""

    def __init__(self, ask: Callable[[], list[Left]], *, within_s: float) -> None:
        self._ask = ask
        self._until = time.monotonic() + within_s
        self._tick = threading.Event()

    def wait_for_connections(self) -> int:
        """Until no connection may bring a request any more. Returns how many requests still run."""
        left = self._wait(lambda idle, working: idle == 0)
        return left[1] if left is not None else 0

    def wait_for_requests(self) -> bool:
        """Until no request runs either, or the time for that is over; whether none runs."""
        return self._wait(lambda idle, working: idle + working == 0) == (0, 0)

    def _wait(self, is_enough: Callable[[int, int], bool]) -> Left | None:
        while True:
            left = self._left()
            if left is not None and is_enough(*left):
                return left
            if time.monotonic() > self._until:
                return left
            self._tick.wait(POLL_S)

    def _left(self) -> Left | None:
        """None where it is unknown: a process has just died, say, and Ray starts another, which is to retire too."""
        try:
            found = self._ask()
        except Exception as error:
            logger.debug("HTTP processes that retire do not answer: %s", error)
            return None
        return sum(idle for idle, _ in found), sum(working for _, working in found)


def retiring(application: str, server: ServerSettings) -> Retiring:
    """The HTTP processes of `application`, which run with these settings."""
    return Retiring(asking(application), within_s=longest_s(server))


def longest_s(server: ServerSettings) -> float:
    """Longer than any request and any silent connection."""
    return server.start_wait_s + server.longest_request_s + server.idle_timeout_s + SETTLE_S


def asking(application: str, *arguments: Any) -> Callable[[], list[Left]]:
    """Has each HTTP process of the application retire, with these arguments."""
    everyone: list[Everyone] = []

    def ask() -> list[Left]:
        # Not before: what fails here is tried again.
        if not everyone:
            everyone.append(Everyone(application))
        return everyone[0].ask("retire", *arguments, timeout_s=ANSWER_S)

    return ask
