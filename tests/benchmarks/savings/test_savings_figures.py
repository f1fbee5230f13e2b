"""What compression saved, worked out by hand: bills, shares, hit rates, intervals and what of the evidence is left."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.evaluation.case import Case
from benchmarks.savings.comparing import compare
from benchmarks.savings.compressing import Compressor, Sent
from benchmarks.savings.conversation import Conversation
from benchmarks.savings.idle import added_ms
from benchmarks.savings.interval import Estimate, bootstrap
from benchmarks.savings.kept import Kept, of_question, of_session, shares
from benchmarks.savings.passages import SHAPES
from benchmarks.savings.passages import messages as passage_messages
from benchmarks.savings.replay import WHOLE, Session
from benchmarks.savings.reply import Reply, reply_of

SIDE = "target_ratio 0.3"
EVENT = {
    "usage": {"prompt_tokens": 40, "completion_tokens": 8, "prompt_tokens_details": {"cached_tokens": 32}},
    "service": {"billing": {"request_cost_usd": 0.0000235}},
}


def one(tokens: int, cached: int, chat: int, compression: int = 0, ttft_ms: float = 10) -> Reply:
    return Reply(tokens, cached, chat, compression, tokens, "applied", ttft_ms, 2 * ttft_ms)


def session(group: str, whole: list[Reply], ours: list[Reply]) -> Session:
    return Session(group, {WHOLE: whole, SIDE: ours})


def test_a_reply_without_compression_has_the_prompt_as_its_original_and_costs_nothing_beside() -> None:
    found = reply_of(EVENT, ttft_ms=3, latency_ms=4)
    assert (found.prompt_tokens, found.cached_tokens, found.original_tokens) == (40, 32, 40)
    assert (found.nano_usd, found.compression_nano_usd, found.status) == (23_500, 0, "off")


def test_the_price_of_compression_is_part_of_the_bill() -> None:
    compression = {
        "status": "applied",
        "original_tokens": 90,
        "cost_usd": 0.000001,
        "blocks": [{"message": 1}],
    }
    service = {**EVENT["service"], "compression": compression}
    found = reply_of({**EVENT, "service": service}, ttft_ms=3, latency_ms=4)
    assert (found.nano_usd, found.compression_nano_usd, found.original_tokens) == (24_500, 1_000, 90)


def test_a_session_is_dearer_when_chat_and_compression_together_cost_more() -> None:
    whole = [one(100, 0, 100), one(200, 96, 150)]
    cheaper = session("a", whole, [one(50, 0, 50), one(100, 48, 80)])
    dearer = session("b", whole, [one(50, 0, 50, 201), one(100, 48, 0)])
    same = session("c", whole, [one(50, 0, 50, 200), one(100, 48, 0)])
    found = compare([cheaper, dearer, same], SIDE)
    assert (found.sessions, found.requests, found.dearer) == (3, 6, 1)
    assert found.bill.value == (130 + 251 + 250) / 750
    assert (found.usd, found.compression_usd) == ((750e-9, 631e-9), 401e-9)


def test_tokens_are_compared_session_by_session_and_in_total() -> None:
    short = session("a", [one(100, 0, 1)], [one(90, 0, 1)])
    long = session("b", [one(1000, 500, 1)], [one(300, 100, 1)])
    middle = session("c", [one(100, 0, 1)], [one(50, 0, 1)])
    found = compare([short, long, middle], SIDE)
    assert found.median_tokens.value == 0.5
    assert found.total_tokens.value == 440 / 1200
    assert found.hit_rates == (500 / 1200, 100 / 440)
    assert found.hit_rate.value == pytest.approx((100 / 440) / (500 / 1200))


def test_a_hit_rate_of_nothing_is_no_number() -> None:
    assert math.isnan(compare([session("a", [one(9, 0, 1)], [one(9, 0, 1)])], SIDE).hit_rate.value)


def test_waiting_times_are_medians_of_all_requests() -> None:
    whole = [one(9, 0, 1, ttft_ms=ms) for ms in (10, 20, 90)]
    ours = [one(9, 0, 1, ttft_ms=ms) for ms in (5, 8, 9)]
    found = compare([session("a", whole, ours)], SIDE)
    assert (found.ttft_ms, found.ttft.value) == ((20, 8), 0.4)
    assert found.latency_ms == (40, 16)


def test_groups_are_drawn_whole_so_items_alike_leave_the_interval_wide() -> None:
    def mean(values: list[float]) -> float:
        return sum(values) / len(values)

    apart = bootstrap([[value] for value in [0.0] * 50 + [1.0] * 50], mean)
    alike = bootstrap([[0.0] * 50, [1.0] * 50], mean)
    assert apart.value == alike.value == 0.5
    assert (alike.low, alike.high) == (0.0, 1.0)
    assert 0.35 < apart.low < 0.45 < 0.55 < apart.high < 0.65


@given(st.lists(st.lists(st.floats(-5, 5), min_size=1, max_size=3), min_size=1, max_size=6))
def test_an_interval_lies_within_what_was_measured_and_is_the_same_each_time(
    groups: list[list[float]],
) -> None:
    found = bootstrap(groups, max, draws=40)
    values = [value for group in groups for value in group]
    assert min(values) <= found.low <= found.high <= found.value == max(values)
    assert bootstrap(groups, max, draws=40) == found


def test_what_a_default_adds_is_the_difference_of_the_medians() -> None:
    found = added_ms([(10.0, 10.1), (11.0, 11.1), (50.0, 9.0)] * 25)
    assert found.value == pytest.approx(10.1 - 11.0)
    assert Estimate(0.1234, 0.1, 0.15).shown(2) == "0.12 (0.10 to 0.15)"


def test_evidence_is_counted_by_value_and_by_call_that_has_all_of_its_values() -> None:
    found = shares([Kept("a", 1.0, 0.5, 2, 2), Kept("a", 0.5, 0.0, 1, 1)])
    assert {name: each.value for name, each in found.items()} == {
        "evidence": 0.75, "all of it": 0.5, "in results": 0.25, "all of it in results": 0.0
    }  # fmt: skip


class Cutting:
    """A compressor that keeps the first half of each text but a question, and says that it has five tokens."""

    async def sent(self, messages: Sequence[Mapping[str, Any]]) -> Sent:
        def half(content: Any) -> Any:
            if isinstance(content, list):
                *parts, question = content
                return [*({**part, "text": half(part["text"])} for part in parts), question]
            return content[: len(content) // 2]

        cut = [{**each, "content": half(each["content"])} if is_block(each) else each for each in messages]
        return Sent(cut, [block(at) for at, each in enumerate(messages) if is_block(each)])


def is_block(message: Mapping[str, Any]) -> bool:
    return message["role"] == "tool" or isinstance(message["content"], list)


def block(message: int, tokens: int = 5) -> dict[str, object]:
    return {"message": message, "parts": None, "receipt": {"output_tokens": tokens}}


def reply_with(*blocks: dict[str, object]) -> Reply:
    return Reply(9, 0, 1, 0, 9, "applied", 1, 2, blocks)


@pytest.mark.parametrize(("text", "kept"), [("Marta it was", 1.0), ("It was Marta", 0.0)])
async def test_an_answer_is_looked_for_in_the_passages_as_sent(text: str, kept: float) -> None:
    case = Case("nq", "nq-1", "Marta?", text, ((0, len(text)),), answers=("Marta",))
    compressor, messages = cast(Compressor, Cutting()), passage_messages(case, SHAPES[0], marked=True)
    found = await of_question(case, messages, reply_with(block(0)), compressor)
    assert (found.sent, found.compressed, found.same_tokens) == (kept, 1, 1)
    other = await of_question(case, messages, reply_with(block(0, tokens=4)), compressor)
    assert (other.compressed, other.same_tokens) == (1, 0)


async def test_values_of_a_call_are_looked_for_in_all_that_was_sent_and_in_results_alone() -> None:
    def asks(id_: str, arguments: str) -> dict[str, object]:
        call = {"id": id_, "type": "function", "function": {"name": "book", "arguments": arguments}}
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    session = Conversation(
        "a",
        (
            {"role": "user", "content": "Book it."},
            asks("1", '{"user": "marta_li"}'),
            {"role": "tool", "tool_call_id": "1", "content": "HAT001 for a start, then HAT002 of marta_li"},
            {"role": "user", "content": "Go on."},
            asks("2", '{"first": "HAT001", "last": "HAT002", "user": "marta_li"}'),
        ),
    )
    replies = [reply_with(), reply_with(block(2), {**block(3), "receipt": None})]
    [found] = await of_session(session, replies, cast(Compressor, Cutting()))
    assert (found.sent, found.results) == (2 / 3, 1 / 3)
    assert (found.group, found.compressed, found.same_tokens) == ("a", 1, 1)
