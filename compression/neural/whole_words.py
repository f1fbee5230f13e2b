"""Cuts prose into words that are kept or dropped whole, and puts kept words back together as slices of the source."""

# ruff: noqa: RUF001 - marks of other scripts are intended
import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from compression.neural.guards import Guards, Span
from compression.neural.windows import Floats
from compression.text.scripts import DENSE

_RUN = re.compile(r"\S+")
_PART = re.compile(f"[{DENSE}]+|[^{DENSE}]+")
_IS_DENSE = re.compile(f"[{DENSE}]")
_LAST_MARK = re.compile(r"[.!?…。！？]+[\"'”’»)\]]*\Z")
_LONGEST_MARK = 16


@dataclass(frozen=True, slots=True)
class Word:
    """A slice of the source that is kept or dropped whole. `spaced`: white space precedes it."""

    start: int
    end: int
    spaced: bool


def split_words(source: str, span: Span, starts: Sequence[int]) -> list[Word]:
    """The words of `source[span]`: what lies between spaces, or tokens where the script has none.

    `starts` are the sorted offsets at which tokens begin. The mark that ends the span is a word of its own.
    """
    words: list[Word] = []
    for run in _RUN.finditer(source, *span):
        parts = _parts(run, starts)
        words += [Word(start, end, at == 0 and start > span[0]) for at, (start, end) in enumerate(parts)]
    if not words:
        return words
    last = words[-1]
    mark = _LAST_MARK.search(source, max(last.start + 1, last.end - _LONGEST_MARK), last.end)
    if mark:
        words.pop()
        words += [Word(last.start, mark.start(), last.spaced), Word(mark.start(), last.end, False)]
    return words


def _parts(run: re.Match[str], starts: Sequence[int]) -> list[Span]:
    if not _IS_DENSE.search(run.group()):
        return [run.span()]
    parts: list[Span] = []
    for part in _PART.finditer(run.string, *run.span()):
        cuts = [part.start()]
        if _IS_DENSE.match(part.group()):
            cuts += starts[bisect_right(starts, part.start()) : bisect_left(starts, part.end())]
        parts += list(zip(cuts, [*cuts[1:], part.end()], strict=True))
    return parts


@dataclass(frozen=True, slots=True)
class Judged:
    """For each word the mean keep probability of its tokens, and how many they are."""

    kept: Floats
    tokens: NDArray[np.int64]


class Judge:
    """Judges words by the keep probabilities of a text's tokens, which are added up once for all its spans."""

    def __init__(self, offsets: Sequence[Span], kept: Floats) -> None:
        self._starts = np.fromiter((start for start, _ in offsets), np.int64, len(offsets))
        self._ends = np.maximum.accumulate(np.fromiter((end for _, end in offsets), np.int64, len(offsets)))
        self._sums = np.concatenate([[0.0], np.cumsum(kept, dtype=np.float64)])

    def judge(self, words: Sequence[Word]) -> Judged:
        """From the tokens that overlap each word; both sorted. The probability is 1.0 where the tokenizer saw no token.

        A word that no token covers was not judged, so nothing says that it may go.
        """
        first = np.searchsorted(self._ends, np.array([word.start for word in words], np.int64), side="right")
        last = np.searchsorted(self._starts, np.array([word.end for word in words], np.int64), side="left")
        count = np.maximum(last - first, 0)
        means = (self._sums[first + count] - self._sums[first]) / np.maximum(count, 1)
        return Judged(np.where(count > 0, means, 1.0).astype(np.float32), count)


@dataclass(frozen=True, slots=True)
class Group:
    """Words `first` to `last` (half-open) that are kept or dropped together; `locked` ones are kept."""

    first: int
    last: int
    locked: bool


def group_words(words: Sequence[Word], guards: Guards) -> list[Group]:
    """One group a word, except where a guard ties words together. Guards have offsets into the source."""
    starts, ends = [word.start for word in words], [word.end for word in words]
    tied, locked = [False] * len(words), [False] * len(words)
    for spans, is_locked in ((guards.locked, True), (guards.bound, False)):
        for start, end in spans:
            first, last = bisect_right(ends, start), bisect_left(starts, end)
            tied[first + 1 : last] = [True] * max(last - first - 1, 0)
            if is_locked:
                locked[first:last] = [True] * (last - first)
    heads = [index for index in range(len(words)) if not tied[index]]
    return [
        Group(first, last, any(locked[first:last]))
        for first, last in zip(heads, [*heads[1:], len(words)], strict=True)
    ]


def join_words(source: str, words: Sequence[Word], kept: Sequence[bool]) -> list[Span]:
    """Slices that hold the kept words, each with the white space before it; no two words are run together."""
    kept = _unfused(source, words, kept)
    spans: list[Span] = []
    for index, word in enumerate(words):
        if not kept[index]:
            continue
        start = words[index - 1].end if index and word.spaced and spans else word.start
        if spans and spans[-1][1] == start:
            spans[-1] = (spans[-1][0], word.end)
        else:
            spans.append((start, word.end))
    return spans


def _unfused(source: str, words: Sequence[Word], kept: Sequence[bool]) -> list[bool]:
    """`kept`, with words between put back where two others would become one: ABC中文DEF without its middle."""
    out, last = list(kept), None
    for index, word in enumerate(words):
        if not out[index]:
            continue
        if last is not None and last < index - 1 and not word.spaced:
            left, right = source[words[last].end - 1], source[word.start]
            if left.isalnum() and right.isalnum() and not (_IS_DENSE.match(left) and _IS_DENSE.match(right)):
                at = index
                while at > last + 1 and not words[at].spaced:
                    at -= 1
                    out[at] = True
        last = index
    return out
