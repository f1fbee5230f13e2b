"""The evidence that was sent: the answers to questions, and the values that an agent's next call repeats."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.evaluation.case import Case
from benchmarks.evaluation.metrics import holds_answer
from benchmarks.evaluation.suites.traces import Trace, holds_value, moments
from benchmarks.savings.compressing import Blocks, Compressor
from benchmarks.savings.conversation import Conversation, Message
from benchmarks.savings.interval import Estimate, bootstrap
from benchmarks.savings.reply import Reply

# Between parts of one message.
JOINT = "\n\n"


@dataclass(frozen=True, slots=True)
class Kept:
    """Of one request: the share of its evidence in all that was sent and in tools' results or passages alone; how many
    blocks its reply says were compressed, and to how many of them `/v1/compress` gave as many tokens."""

    group: str
    sent: float
    results: float
    compressed: int
    same_tokens: int


async def of_question(
    case: Case, messages: Sequence[Message], reply: Reply, compressor: Compressor
) -> Kept:  # fmt: skip
    """Whether an answer is in the passages that were sent. Raises `Failed`."""
    sent = await compressor.sent(messages)
    *passages, _ = sent.messages[0]["content"]
    kept = float(holds_answer(JOINT.join(part["text"] for part in passages), case.answers))
    return Kept(case.name, kept, kept, *_agreement(reply, sent.blocks))


async def of_session(
    conversation: Conversation, replies: Sequence[Reply], compressor: Compressor
) -> list[Kept]:
    """For each call that repeats values of earlier results. The replies are those to the conversation's requests.
    Raises `Failed`."""
    by_length = {
        len(messages): reply for messages, reply in zip(conversation.requests(), replies, strict=True)
    }
    trace = Trace(conversation.task, tuple(dict(message) for message in conversation.messages))
    found = []
    for moment in moments(trace, longer_than=0):
        sent = await compressor.sent(moment.history)
        compressed, same = _agreement(by_length[len(moment.history)], sent.blocks)
        results = [str(each["content"]) for each in sent.messages if each["role"] == "tool"]
        anywhere, alone = _share(moment.values, _texts(sent.messages)), _share(moment.values, results)
        found.append(Kept(conversation.task, anywhere, alone, compressed, same))
    return found


def _texts(messages: Sequence[Message]) -> list[str]:
    """All that a model reads of them."""
    calls = [str(call["function"]["arguments"]) for each in messages for call in each.get("tool_calls") or ()]
    return [*(str(each["content"] or "") for each in messages), *calls]


def _share(values: Sequence[str], texts: Sequence[str]) -> float:
    return statistics.fmean(any(holds_value(text, value) for text in texts) for value in values)


def _agreement(reply: Reply, blocks: Blocks) -> tuple[int, int]:
    theirs = _tokens_of(blocks)
    ours = _tokens_of(reply.blocks)
    return len(ours), sum(theirs.get(place) == tokens for place, tokens in ours.items())


def _tokens_of(blocks: Blocks) -> dict[tuple[Any, ...], int]:
    """Of the compressed ones, by their message and parts; of none, where a block is all of a message's text."""
    return {
        (block["message"], *(block["parts"] or ())): block["receipt"]["output_tokens"]
        for block in blocks
        if block.get("receipt")
    }


def shares(kept: Sequence[Kept]) -> Mapping[str, Estimate]:
    """Of the evidence, and of the requests that have all of theirs; in all that was sent and in results alone."""
    groups: dict[str, list[Kept]] = {}
    for each in kept:
        groups.setdefault(each.group, []).append(each)
    figures = {
        "evidence": lambda some: statistics.fmean(each.sent for each in some),
        "all of it": lambda some: statistics.fmean(each.sent == 1 for each in some),
        "in results": lambda some: statistics.fmean(each.results for each in some),
        "all of it in results": lambda some: statistics.fmean(each.results == 1 for each in some),
    }
    return {name: bootstrap(list(groups.values()), figure) for name, figure in figures.items()}
