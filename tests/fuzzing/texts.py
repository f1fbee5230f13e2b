"""Targets: texts, pages and conversations through the segmenter and the whole of a compression."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

from compression.pipeline.compression_model import CompressionRequest, CompressionResult
from compression.pipeline.pipeline import Compressor, Pipeline
from compression.pipeline.spec import CompressionSettings
from compression.scorers.lexical import BM25Scorer, LexicalScorer
from compression.segmentation import SegmentationSettings, segment
from compression.segmentation.markup import tokens
from compression.segmentation.pages import segment_page
from compression.source.edits import with_markup, without
from compression.source.units import Segmentation, join
from tests.compression.conftest import pith_mini
from tests.compression.conversation.chats import is_conversation_still, random_chat
from tests.compression.segmentation import invariants
from tests.fuzzing.choices import Choices

# A text is made of what the fuzzer chose, said again up to this length: what costs its square shows so.
MOST_CHARS = 6_000
# CPU seconds that are looked at closely; what a text of four times the length may then take, in times.
SLOW_S = 0.3
MOST_GROWTH = 8
TRIES = 3
MOST_UNITS = (32_768, 7, 60)
RATIOS = (0.5, 0.05, 0.2, 0.9, 1.0)
QUERY = "Which order was booked, and what did the committee decide about the 3 budgets?"


def repeated(choices: Choices) -> str:
    times = choices.choice((*[1] * 13, 20, 400, MOST_CHARS))
    said = choices.rest().decode("utf-8", "replace")
    return said * min(times, MOST_CHARS // max(1, len(said)) or 1)


def in_linear_time(work: Callable[[str], Any], source: str) -> Any:
    """What the work gives. Where it takes long it must take a quarter, or so, of a quarter of the text."""
    began = time.thread_time()
    found = work(source)
    if time.thread_time() - began > SLOW_S:
        quarter = source[: len(source) // 4]
        some_s, all_s = least_s(lambda: work(quarter)), least_s(lambda: work(source))
        assert all_s <= MOST_GROWTH * some_s, (
            f"{len(source)} characters took {all_s:.2f} s, a quarter {some_s:.2f} s"
        )
    return found


def least_s(work: Callable[[], Any]) -> float:
    """Of some tries, since the machine may be busy with something else."""
    taken = []
    for _ in range(TRIES):
        began = time.thread_time()
        work()
        taken.append(time.thread_time() - began)
    return min(taken)


def segmentation(data: bytes) -> None:
    """Units are in order and apart, and no word is outside of them; so they are in the input that a view is of."""
    choices = Choices(data)
    settings = SegmentationSettings(
        most_units=choices.choice(MOST_UNITS),
        longest_unit=choices.choice((600, 40)),
        conversations=choices.random() < 0.5,
    )
    source = repeated(choices)
    text: Segmentation = in_linear_time(lambda part: segment(part, settings), source)
    assert len(text.units) <= settings.most_units
    if text.origin is None:
        assert text.source == source
        invariants.check(text, str.isalpha)
    else:
        assert text.origin.input == source
        are_slices(text, source)


def are_slices(text: Segmentation, source: str) -> None:
    at = 0
    for unit in text.units:
        assert at <= unit.start < unit.end <= len(text.source)
        at = unit.end
    raw = text.raw_slices([(unit.start, unit.end) for unit in text.units])  # type: ignore[list-item]
    assert all(0 <= start < end <= len(source) for start, end in raw)
    assert all(end <= start for (_, end), (start, _) in pairwise(raw))


def page(data: bytes) -> None:
    """A page's units are slices of it, its view can be left and made again, and its tokens do not overlap."""
    choices = Choices(data)
    is_escaped = choices.random() < 0.3
    source = repeated(choices)
    text: Segmentation = in_linear_time(
        lambda part: segment_page(part, SegmentationSettings(), is_escaped=is_escaped), source
    )
    are_slices(text, source)
    back = without(with_markup(text))
    assert (back.source, back.units, back.main) == (text.source, text.units, text.main)
    spans = [(token.start, token.end) for token in tokens(source)]
    assert all(start < end for start, end in spans)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


@cache
def lexical() -> LexicalScorer:
    return LexicalScorer.load()


def compressed(choices: Choices, source: str, query: str = QUERY) -> tuple[CompressionResult, float, bool]:
    ratio, marks = choices.choice(RATIOS), choices.random() < 0.3
    in_order = choices.random() < 0.7
    scorer: Any = choices.choice((BM25Scorer, lexical))()
    fine = CompressionSettings(
        segmentation=SegmentationSettings(most_units=choices.choice(MOST_UNITS)),
    )
    request = CompressionRequest(query, source, ratio, preserve_order=in_order, explain=True, mark_gaps=marks)
    result = Compressor(scorer, Pipeline(pith_mini(), fine)).compress(request)
    codes = {flag.code for flag in result.receipt.risk_flags}
    assert result.receipt.compression_ratio <= ratio or "target_unreachable" in codes
    assert ratio != 1.0 or result.output == source
    assert marks or result.output == join(source, result.kept)
    for flag in result.receipt.risk_flags:
        assert all(source.startswith(shown.text, shown.start) for shown in flag.examples)
    assert all(0 <= unit.start < unit.end <= len(source) for unit in result.unit_scores)
    return result, ratio, marks


def compression(data: bytes) -> None:
    """The output is slices of the source and never over its target, for any text and any query."""
    choices = Choices(data)
    how = Choices(choices.take(8))
    said = choices.rest().decode("utf-8", "replace")
    query, _, source = said.rpartition("\0")
    if source:
        compressed(how, source, query or QUERY)


def conversation(data: bytes) -> None:
    """A conversation in is a conversation out: JSON, each call with its result, texts cut and nothing else."""
    choices = Choices(data)
    how = Choices(choices.take(10))
    messages = random_chat(choices)
    said = choices.rest().decode("utf-8", "replace")
    if said:
        messages.append({"role": "user", "content": said})
    source = json.dumps(messages, indent=how.choice((None, 1)), ensure_ascii=how.random() < 0.5)
    result, _, marks = compressed(how, source)
    left = is_conversation_still(source, messages, result, has_marks=marks)
    codes = {flag.code for flag in result.receipt.risk_flags}
    assert "json_invalid" not in codes
    assert "target_unreachable" not in codes or not left
