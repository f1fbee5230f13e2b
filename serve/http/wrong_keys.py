"""Counts each client's wrong keys, so that a flood of guesses is refused.

It never refuses a right key: clients behind one address share its count, and one of them guessing must not shut the
others out. Guessing is hopeless (a key has 256 random bits); this slows clients that retry for ever, and shows them.
"""

from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime

from billing.errors import InvalidKey

AT_ONCE = 60
A_MINUTE = 60
# The client that was wrong longest ago is forgotten first.
MAX_CLIENTS = 10_000


class TooManyWrongKeys(Exception):
    """This client has sent more wrong keys than it may; the last one was wrong as well."""

    def __init__(self, retry_after_s: float) -> None:
        super().__init__(
            f"too many wrong API keys from your address; at most {A_MINUTE} a minute are looked at"
        )
        self.retry_after_s = retry_after_s


@dataclass(slots=True)
class _Count:
    wrong: float
    at: datetime


class WrongKeys:
    """The wrong keys of each client: a bucket of `AT_ONCE` that leaks `A_MINUTE` a minute."""

    def __init__(self) -> None:
        self._counts: OrderedDict[str, _Count] = OrderedDict()

    def add(self, client: str, error: InvalidKey, *, now: datetime) -> Exception:
        """Count one. Returns the error for the client: the given one, or that there were too many."""
        count = self._counts.pop(client, None) or _Count(0, now)
        passed_s = max(0.0, (now - count.at).total_seconds())
        count.wrong, count.at = max(0.0, count.wrong - passed_s * A_MINUTE / 60) + 1, now
        self._counts[client] = count
        if len(self._counts) > MAX_CLIENTS:
            self._counts.popitem(last=False)
        if count.wrong <= AT_ONCE:
            return error
        # No more than what leaks in a minute, or an address would stay refused long after a flood.
        count.wrong = min(count.wrong, AT_ONCE + 1)
        return TooManyWrongKeys(60 / A_MINUTE)
