"""What is kept of `Idempotency-Key`: so many answers, for so long."""

from __future__ import annotations

from typing import Any

from serve.ops import idempotency
from serve.ops.idempotency import KEPT_S, Made


class Counting:
    """Makes one thing after another."""

    def __init__(self) -> None:
        self.made = 0

    async def make(self) -> dict[str, Any]:
        self.made += 1
        return {"number": self.made}


async def test_an_answer_is_kept_for_a_day() -> None:
    moment, things = [0.0], Counting()
    made = Made(clock=lambda: moment[0])
    for at, number in ((0.0, 1), (KEPT_S - 1, 1), (KEPT_S, 2), (2 * KEPT_S - 1, 2)):
        moment[0] = at
        assert await made.once("k", "request", things.make) == {"number": number}


async def test_the_oldest_answer_makes_room(monkeypatch: Any) -> None:
    monkeypatch.setattr(idempotency, "MOST_KEPT", 2)
    made, things = Made(), Counting()
    for key, number in (("a", 1), ("b", 2), ("b", 2), ("c", 3), ("b", 2), ("a", 4)):
        assert await made.once(key, "request", things.make) == {"number": number}
