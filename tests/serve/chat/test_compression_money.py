"""Money of chats with priced compression, over prices, limits, tokenizers and overlaps: never dearer than without,
never refused where it was not, and one charge for each block."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from billing.errors import UsageNotRecorded
from billing.price import PICO_PER_NANO, ModelPrice
from compression.source.token_counter import FakeCounter, TokenCounter
from serve.chat.request import DEFAULT_MAX_TOKENS
from tests.serve.chat.test_compression import CALL, QUESTION
from tests.serve.compressing import Compressing, local_model
from tests.serve.served import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")
Messages = list[dict[str, Any]]


class CharacterCounter:
    """So many characters are a token."""

    sha256 = ""

    def __init__(self, characters: int) -> None:
        self.name = f"{characters} characters"
        self._characters = characters

    def count(self, text: str) -> int:
        return -(-len(text) // self._characters)

    def count_many(self, texts: Sequence[str]) -> list[int]:
        return [self.count(text) for text in texts]


COUNTERS: tuple[TokenCounter, ...] = (FakeCounter(), CharacterCounter(2), CharacterCounter(6))
TOKENIZERS: dict[str, Callable[[str], Sequence[str]]] = {
    "words": str.split,
    "words and marks": re.compile(r"\w+|[^\w\s]").findall,
    "seven characters": re.compile(r".{1,7}", re.DOTALL).findall,
    "dear digits": re.compile(r"\d|[^\d\s]{1,6}").findall,
}
PRICED = {"target_ratio": 0.3, "model": "lexical", "min_tokens": 16}


@dataclass(frozen=True)
class Turn:
    """A tool's result of so many lines, or a marked text before a question."""

    lines: int
    is_marked: bool

    def messages(self, number: int) -> Messages:
        result = "\n\n".join(
            f"Item {number}.{i} has a price of {i * 7} dollars and colour number {i % 5}."
            for i in range(self.lines)
        )
        if self.is_marked:
            parts = [{"type": "text", "text": result, "compress": True}, {"type": "text", "text": QUESTION}]
            return [{"role": "user", "content": parts}]
        call = {**CALL, "id": f"c{number}"}
        return [
            {"role": "user", "content": QUESTION},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": result},
        ]


@dataclass(frozen=True)
class Case:
    """`limit` is about of what is held for the first turn without compression; None: there is none."""

    chat: ModelPrice
    compression_share: float
    counter: TokenCounter
    tokenizer: str
    turns: tuple[Turn, ...]
    options: dict[str, Any]
    limit: float | None


turns = st.builds(Turn, st.one_of(st.integers(2, 20), st.integers(20, 70)), st.booleans())
chat_prices = st.integers(1, 200_000_000).flatmap(
    lambda most: st.builds(
        ModelPrice,
        model_id=st.just("chat"),
        input_micro_usd_per_mtok=st.just(most),
        output_micro_usd_per_mtok=st.sampled_from([0, most, 10 * most]),
        minimum_nano_usd=st.sampled_from([0, 0, most // 3, most]),
        cached_input_micro_usd_per_mtok=st.sampled_from([None, None, most // 10, most // 2, 0]),
    )
)
cases = st.builds(
    Case,
    chat=chat_prices,
    # Where it may pay or not, by how its tokens are counted.
    compression_share=st.one_of(st.sampled_from([0.0, 0.01, 0.1, 3.0]), st.floats(0.2, 0.9)),
    counter=st.sampled_from(COUNTERS),
    tokenizer=st.sampled_from(sorted(TOKENIZERS)),
    turns=st.lists(turns, min_size=1, max_size=3).map(tuple),
    options=st.sampled_from([{}, {"max_tokens": 6}, {"max_tokens": 300}]),
    limit=st.one_of(st.none(), st.floats(1, 1.8), st.floats(0.2, 4)),
)
# Each example is a few chats with a database.
thorough = settings(
    max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


Opened = Callable[[], Compressing]


@pytest.fixture
def opened(module_service: Compressing) -> Opened:
    """Hypothesis writes down what a failing test was given, and would write down all of a service."""
    return lambda: module_service


async def prepare(service: Compressing, case: Case) -> None:
    await service.renewed()
    await service.reprice(case.chat, int(case.chat.input_micro_usd_per_mtok * case.compression_share))
    service.model.counter, service.model.inner = case.counter, local_model(case.counter)
    service.engine.tokens_of = TOKENIZERS[case.tokenizer]


async def spent(service: Compressing) -> int:
    return sum(event["cost_nano_usd"] for event in await service.events())


async def replay(service: Compressing, case: Case, compression: Any, limit: int | None) -> list[int | None]:
    """What each turn cost; None where it was refused for its money."""
    await service.new_key(spend_limit_nano_usd=limit)
    service.forget()
    messages: Messages = []
    bills: list[int | None] = []
    for number, turn in enumerate(case.turns):
        messages += turn.messages(number)
        before = await spent(service)
        reply = await service.chat(messages, compression=compression, **case.options).run()
        assert reply.status in (200, 402), reply.body
        bills.append(await spent(service) - before if reply.status == 200 else None)
        messages = [*messages, {"role": "assistant", "content": "119."}]
    return bills


@thorough
@given(cases)
async def test_no_chat_is_dearer_or_refused_for_being_compressed(opened: Opened, case: Case) -> None:
    service = opened()
    await prepare(service, case)
    limit = None
    if case.limit is not None:
        (first, *_) = await replay(service, case, False, None)
        assert first is not None
        longest = case.options.get("max_tokens", DEFAULT_MAX_TOKENS)
        limit = int((first + longest * case.chat.output_micro_usd_per_mtok // PICO_PER_NANO) * case.limit)
    whole = await replay(service, case, False, limit)
    compressed = await replay(service, case, PRICED, limit)
    for without, with_it in zip(whole, compressed, strict=True):
        if without is None:
            # From here on their quotas differ.
            break
        assert with_it is not None, (whole, compressed)
        assert with_it <= without, (whole, compressed)
    await service.assert_nothing_is_left_open()


End = Literal["stays", "leaves at once", "leaves early", "leaves late"]
ENDS: tuple[End, ...] = ("stays", "leaves at once", "leaves early", "leaves late")


async def chat(service: Compressing, messages: Messages, end: End, after_s: float) -> int:
    await asyncio.sleep(after_s)
    client = service.chat(messages, compression=PRICED, stream=True, max_tokens=6)
    running = client.start()
    if end == "leaves early":
        with suppress(AssertionError):
            await eventually(lambda: service.model.started)
    elif end == "leaves late":
        await eventually(lambda: client.body or running.done())
    if end != "stays":
        client.gone.set()
    await running
    return client.status if client.sent else 0


@thorough
@given(
    st.lists(st.tuples(st.sampled_from(ENDS), st.sampled_from([0, 0.004, 0.02])), min_size=2, max_size=6),
    st.sets(st.integers(0, 5), max_size=3),
    st.lists(st.integers(10, 40), min_size=1, max_size=2),
    st.sampled_from([0, 0.002]),
)
async def test_overlapping_chats_are_charged_once_for_a_block(
    opened: Opened,
    chats: list[tuple[End, float]],
    lost: set[int],
    lines: list[int],
    token_s: float,
) -> None:
    """Whoever leaves, and whosever usage is lost: what was compressed is charged to one that was settled."""
    service = opened()
    price = ModelPrice("chat", 100_000_000, 400_000_000, 0)
    turns_ = tuple(Turn(count, is_marked=False) for count in lines)
    await prepare(service, Case(price, 0.05, FakeCounter(), "words", turns_, {}, None))
    messages = [message for number, turn in enumerate(turns_) for message in turn.messages(number)]
    settle_all, settled = service.ledger.settle_all, 0

    async def settle(used: Any, **fields: Any) -> Any:
        nonlocal settled
        settled += 1
        if settled - 1 not in lost:
            return await settle_all(used, **fields)
        await asyncio.sleep(0)
        for one in used:
            await service.ledger.release(one.hold, now=fields["now"])
        raise UsageNotRecorded(used[0].hold.event_id, "disk full")

    service.engine.token_s = token_s
    service.ledger.settle_all = settle  # type: ignore[method-assign]
    try:
        statuses = await asyncio.gather(*(chat(service, messages, *how) for how in chats))
        during = [event for event in await service.events() if event["model_id"] == "lexical"]
    finally:
        service.engine.token_s = 0
        service.ledger.settle_all = settle_all  # type: ignore[method-assign]
    reply = (await service.chat(messages, compression=PRICED, max_tokens=6).run()).json()
    blocks = reply["service"]["compression"]["blocks"]
    charged = [event for event in await service.events() if event["model_id"] == "lexical"]
    assert all(block["compressed"] for block in blocks)
    assert sum(event["prompt_tokens"] for event in charged) == sum(
        block["receipt"]["original_tokens"] for block in blocks
    )
    if not lost and 200 in statuses and any(end == "stays" for end, _ in chats):
        assert reply["service"]["compression"]["cost_usd"] == 0, during
    if not any(end in ("leaves at once", "leaves early") for end, _ in chats):
        assert len(service.model.started) == len(blocks)
    await service.assert_nothing_is_left_open()
