"""What waits to be scored: how much of it, whose turn it is, for how long, and what two scores make of a check."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from billing.preservation.checks import PreservationCheck
from billing.preservation.sizes import Bound, SizedFor
from models.engine import EngineRequest, ScoredReply, TokenUsage
from models.fake_engine import FakeEngine
from serve.prompt_compression import verifying
from serve.prompt_compression.blocks import Block
from serve.prompt_compression.verifying import (
    LEAST_LOG_PROB,
    MOST_OF_A_PROJECT,
    MOST_REPLY,
    MOST_WAITING,
    NotComparable,
    SettledReply,
    Verifier,
    compared,
    kind_of,
)
from serve.prompt_compression.whole_chats import BYTES_PER_TOKEN, WholeChats
from tests.serve.served import eventually

MESSAGES = ({"role": "user", "content": "one two three four five six"},)
SENT = ({"role": "user", "content": "one six"},)
NOW = datetime(2026, 11, 20, tzinfo=UTC)


@dataclass
class Metrics:
    dropped: Counter[str] = field(default_factory=Counter)
    scored: list[PreservationCheck] = field(default_factory=list)

    def drop(self, model_id: str, reason: str) -> None:
        self.dropped[reason] += 1

    def score(self, check: PreservationCheck, engine_s: float) -> None:
        self.scored.append(check)


class Store:
    async def record(self, check: PreservationCheck, sized: SizedFor | None, now: datetime) -> bool:
        return True


SIZED = SizedFor("w", "a", '{"within":0.05}', Bound("nats", 0.05))


class Sizes:
    def __init__(self) -> None:
        self.added: Counter[SizedFor] = Counter()

    async def add_whole(self, of: SizedFor, count: int, now: datetime) -> None:
        assert now == NOW
        self.added[of] += count


def compressed(verify: float = 1.0, *, blocks: int = 1) -> Any:
    block = SimpleNamespace(block=Block(0, (), ("text",), ""))
    settings = SimpleNamespace(verify=verify, model_id="pith-extract", target_ratio=0.3, keep=None)
    return SimpleNamespace(
        prompt=SimpleNamespace(settings=settings, sized=None),
        result=SimpleNamespace(compressed=[block] * blocks),
    )


def settled(number: int = 0, *, project: str = "a", model: str = "m", **fields: Any) -> SettledReply:
    request = EngineRequest(f"r{number}", model, SENT, 9, False, "salt", project_id=project)
    given: dict[str, Any] = {
        "messages": MESSAGES,
        "sent": request,
        "reply": (1, 2, 3),
        "usage": TokenUsage(3, 3),
        "caller": SimpleNamespace(workspace_id="w", project_id=project),
        "event_id": f"e{number}",
        "request_id": f"r{number}",
        "compressed": compressed(),
    }
    return SettledReply(**{**given, **fields})


@dataclass
class Room:
    verifier: Verifier
    engines: dict[str, FakeEngine]
    metrics: Metrics
    sizes: Sizes


@asynccontextmanager
async def room(**options: Any) -> AsyncIterator[Room]:
    engines, metrics = {"m": FakeEngine(), "other": FakeEngine()}, Metrics()
    sizes: Any = Sizes()
    collaborators: Any = {"store": Store(), "metrics": metrics, "whole": WholeChats(sizes, lambda: NOW)}
    verifier = Verifier(engines=engines, clock=lambda: NOW, **collaborators, **options)
    try:
        yield Room(verifier, engines, metrics, sizes)
    finally:
        await verifier.close()


async def test_a_share_of_the_compressed_chats_keeps_its_reply() -> None:
    draws = iter([0.0099, 0.01, 0.5])
    async with room(draw=lambda: next(draws)) as found:
        kept = [found.verifier.kept_of(compressed(0.01)) for _ in range(3)]
        assert kept == [MOST_REPLY, 0, 0]
        # Nothing is drawn for those that cannot be samples.
        assert [found.verifier.kept_of(one) for one in (compressed(0.0), compressed(blocks=0))] == [0] * 2
    async with room(is_on=False) as off:
        assert off.verifier.kept_of(compressed()) == 0


async def test_more_than_a_process_or_a_project_may_have_waiting_is_dropped_and_counted() -> None:
    async with room() as found:
        found.engines["m"].answers = False
        for number in range(MOST_OF_A_PROJECT + 3):
            found.verifier.take(settled(number))
        assert found.metrics.dropped == {"queue_full": 3}
        for number in range(MOST_WAITING):
            found.verifier.take(settled(number, project=f"p{number}"))
        assert found.metrics.dropped["queue_full"] == 3 + MOST_OF_A_PROJECT


async def test_what_waits_has_no_more_bytes_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifying, "MOST_BYTES", 20_000)
    long = ({"role": "user", "content": "x" * 9_000},)
    async with room() as found:
        found.engines["m"].answers = False
        for number in range(3):
            found.verifier.take(settled(number, project=str(number), messages=long))
        assert found.metrics.dropped == {"queue_full": 1}
    # What has ended makes room.
    async with room() as found:
        for number in range(3):
            found.verifier.take(settled(number, messages=long))
            await eventually(lambda number=number: len(found.metrics.scored) == number + 1)  # type: ignore[misc]


async def test_projects_take_turns_however_many_of_one_wait() -> None:
    async with room() as found:
        for number in range(4):
            found.verifier.take(settled(number, project="many"))
        found.verifier.take(settled(9, project="one"))
        await eventually(lambda: len(found.metrics.scored) == 5)
        assert [check.project_id for check in found.metrics.scored] == ["many", "one", "many", "many", "many"]


async def test_a_model_that_is_busy_keeps_no_other_waiting() -> None:
    async with room() as found:
        found.engines["m"].answers = False
        found.verifier.take(settled(0))
        found.verifier.take(settled(1, model="other"))
        await eventually(lambda: len(found.metrics.scored) == 1)
        assert found.metrics.scored[0].model_id == "other"


async def test_one_that_has_no_turn_in_time_is_dropped_and_the_next_is_scored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with room() as found:
        found.engines["m"].answers = False
        monkeypatch.setattr(verifying, "LONGEST_WAIT_S", 0.05)
        found.verifier.take(settled(0))
        await eventually(lambda: found.metrics.dropped == {"late": 1})
        monkeypatch.setattr(verifying, "LONGEST_WAIT_S", 600.0)
        found.engines["m"].answers = True
        found.verifier.take(settled(1))
        await eventually(lambda: len(found.metrics.scored) == 1)


async def test_what_cannot_be_read_reaches_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async with room() as found:
        found.verifier.take(settled(messages=({"role": object()},)))
        assert found.metrics.dropped == {"failed": 1}
        found.verifier.take(settled(reply=()))
        assert found.metrics.dropped == {"failed": 1, "no_reply": 1}
    found.verifier.take(settled())
    assert found.metrics.dropped["queue_full"] == 1


async def test_what_waits_when_its_process_ends_is_counted() -> None:
    async with room() as found:
        found.engines["m"].answers = False
        for number in range(3):
            found.verifier.take(settled(number))
        await eventually(lambda: found.engines["m"].scored)
    assert found.metrics.dropped == {"stopped": 3}


def check() -> PreservationCheck:
    return settled().check(NOW)


def scores(tokens: int, *log_probs: float, likeliest: tuple[int, ...] = (1, 2, 3)) -> ScoredReply:
    return ScoredReply(tokens, log_probs, likeliest[: len(log_probs)])


def test_the_shift_is_the_mean_over_the_replys_tokens() -> None:
    found = compared(check(), scores(9, -1.0, -2.0, -4.0), scores(3, -0.5, -2.0, -1.0, likeliest=(1, 7, 3)))
    assert (found.original_tokens, found.sent_tokens) == (9, 3)
    assert (found.scored_tokens, found.agreeing_tokens) == (3, 2)
    assert found.nats_per_token == pytest.approx((0.5 + 0.0 + 3.0) / 3)


def test_of_a_reply_that_fits_after_one_prompt_alone_only_what_fits_after_both_counts() -> None:
    found = compared(check(), scores(9, -1.0), scores(3, -0.5, -9.0))
    assert (found.scored_tokens, found.nats_per_token) == (1, 0.5)
    with pytest.raises(NotComparable) as refused:
        compared(check(), scores(9), scores(3, -0.5))
    assert refused.value.reason == "too_long"


def test_what_is_next_to_impossible_has_a_mean() -> None:
    found = compared(check(), scores(9, float("-inf")), scores(3, 0.0))
    assert found.nats_per_token == -LEAST_LOG_PROB


@pytest.mark.parametrize(
    ("text", "is_result", "kind"),
    [("[1, 2]", True, "tool_json"), ("a line", True, "tool_text"), ("[1, 2]", False, "text")],
)
def test_a_blocks_kind_is_what_it_is_a_part_of(text: str, is_result: bool, kind: str) -> None:
    assert kind_of(Block(0, (), (text,), "", is_result)) == kind


def left_whole(
    verify: float = 1.0, *, text: str = "x" * 1000, reason: str | None = "within", sized: SizedFor = SIZED
) -> Any:
    settings = SimpleNamespace(verify=verify, min_tokens=1000 // BYTES_PER_TOKEN)
    block = Block(0, (), (text,), "")
    prompt = SimpleNamespace(settings=settings, sized=sized, left_whole=reason, blocks=(block,))
    return SimpleNamespace(prompt=prompt)


async def test_chats_left_whole_as_their_size_are_counted_by_chance_and_written_together() -> None:
    draws = iter([0.49, 0.5, 0.1])
    async with room(draw=lambda: next(draws)) as found:
        for _ in range(3):
            found.verifier.left_whole(left_whole(0.5))
        await found.verifier.whole.write()
        await found.verifier.whole.write()
        assert found.sizes.added == {SIZED: 2}


async def test_chats_that_would_not_have_been_compressed_or_are_held_out_do_not_count() -> None:
    async with room(draw=lambda: 0.0) as found:
        found.verifier.left_whole(left_whole(text="x" * 999))
        found.verifier.left_whole(left_whole(reason="holdout"))
        found.verifier.left_whole(compressed())
        await found.verifier.whole.write()
        assert not found.sizes.added


async def test_where_engines_have_no_time_to_score_fewer_chats_left_whole_count() -> None:
    async with room(draw=lambda: 0.5) as found:
        own = compressed()
        own.prompt.sized = SIZED
        for number in range(50):
            found.verifier.take(settled(number, reply=(), compressed=own))
        found.verifier.left_whole(left_whole())
        other = replace(SIZED, project_id="b")
        found.verifier.left_whole(left_whole(sized=other))
        await found.verifier.whole.write()
        assert found.sizes.added == {other: 1}


async def test_samples_that_requests_ask_for_themselves_do_not_count_in_a_projects_share() -> None:
    async with room(draw=lambda: 0.5) as found:
        for number in range(50):
            found.verifier.take(settled(number, reply=()))
        found.verifier.left_whole(left_whole())
        await found.verifier.whole.write()
        assert found.sizes.added == {SIZED: 1}
