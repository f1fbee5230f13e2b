"""Retention of originals: for how long a server keeps them, and how many bytes."""

from dataclasses import dataclass

from models.errors import InvalidField

# Thirty years: what a request's shape takes. A server's configuration allows less.
MAX_RETAIN_S = 10**9
RETAIN_S_FIELD = ("compression", "retain_s")
BYTES_PER_MB = 2**20


@dataclass(frozen=True, slots=True)
class Retention:
    """The longest that a request may ask for, in seconds, and the bytes that one project's originals may have
    together."""

    max_s: int
    most_bytes: int

    def check(self, retain_s: int | None, loc: tuple[str | int, ...] = RETAIN_S_FIELD) -> None:
        """Raises `InvalidField` (422) at `loc` below the body's root for more than the configuration allows."""
        if retain_s is None or retain_s <= self.max_s:
            return
        allowed = f"this server keeps originals for {self.max_s} seconds at the most"
        message = allowed if self.max_s else "this server keeps no originals"
        raise InvalidField(loc, message, kind="less_than_equal")
