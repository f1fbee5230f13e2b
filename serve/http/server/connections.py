"""How many connections there may be, for one client and in all, and how long each may take to send what it sends."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from serve.config.values.networks import Network
from serve.http.client_address import client_of, is_in_networks
from serve.http.server.refusals import BadHttp

# Connections over a limit that may wait for their refusal; the next ones are closed without a word.
MAX_WAITING_REFUSALS = 256
REFUSAL_WAIT_S = 1.0


@dataclass(frozen=True, slots=True)
class ReceiveTimes:
    """`idle_s` with nothing under way; `head_s` from a request's first byte to the end of its headers; for a body
    `body_s`, and one second more for each `body_bytes_per_s` of it that came."""

    idle_s: float
    head_s: float
    body_s: float
    body_bytes_per_s: int


class Connections:
    """The connections of one HTTP process. Those from networks in `not_counted` are bound by the overall limit only."""

    def __init__(
        self, *, most: int, most_per_address: int, not_counted: tuple[Network, ...], times: ReceiveTimes
    ) -> None:
        self.times = times
        self._most = most
        self._most_per_address = most_per_address
        self._not_counted = not_counted
        self._of: Counter[str] = Counter()
        self._total = 0
        self._refused = 0

    def open(self, address: str | None) -> Place:
        """Take a connection in. Its place says whether it may stay; it is given back with `close`."""
        client = None if is_in_networks(address, self._not_counted) else client_of(address)
        problem = self._too_many(client)
        if problem is None:
            self._total += 1
            if client is not None:
                self._of[client] += 1
        else:
            self._refused += 1
        return Place(client, problem)

    def close(self, place: Place) -> None:
        if place.problem is not None:
            self._refused -= 1
            return
        self._total -= 1
        if place.client is not None:
            self._of[place.client] -= 1
            if not self._of[place.client]:
                del self._of[place.client]

    @property
    def may_be_told(self) -> bool:
        """Whether a refused connection may stay open until the refusal is sent."""
        return self._refused <= MAX_WAITING_REFUSALS

    def _too_many(self, client: str | None) -> BadHttp | None:
        if self._total >= self._most:
            return BadHttp(503, f"this server has {self._most} connections open, which is its limit")
        if client is not None and self._of[client] >= self._most_per_address:
            return BadHttp(
                429, f"your address has {self._most_per_address} connections open, which is the limit for one"
            )
        return None


@dataclass(frozen=True, slots=True)
class Place:
    """The place of one connection. `client` is None where it is not counted; with a `problem` it is to be refused."""

    client: str | None
    problem: BadHttp | None
