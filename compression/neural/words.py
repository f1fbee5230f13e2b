"""Words of prose, kept or dropped whole; the parts that must not be cut; and kept words as slices of the source."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from compression.neural.batching import Floats
from compression.source.text import DENSE

# ruff: noqa: RUF001 - marks of other scripts are intended


Span = tuple[int, int]

_MONTHS = (
    "Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sep(?:t(?:ember)?)?|"
    "Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?|Januar|Februar|März|Mai|Juni|Juli|Oktober|Dezember"
)
_UNITS = (
    r"%|‰|°\s?[CFK]?|percent|per cent|Prozent|(?:hundred|thousand|million|billion|trillion|Millionen|Milliarden)"
    r"(?:\s(?:dollars|euros|pounds|people))?|[kKMGT]i?B|[kmcµn]?m²?|[kmµ]?g|[mµn]?s|k?Hz|[kMG]Hz|[kM]?W|[kM]?V|mAh|"
    r"mph|km/h|hours?|minutes?|seconds?|days?|weeks?|months?|years?|miles?|feet|inch(?:es)?|metres?|meters?|"
    r"kilomet(?:er|re)s?|kilograms?|tons?|tonnes?|dollars?|euros?|pounds?|yen|USD|EUR|GBP|Uhr|Jahre?n?|am|pm|BC|AD|BCE|CE"
)
_CJK_UNITS = "年月日時时点點分秒億亿万萬千百元円圆人个個名歳岁米度倍次回号號％℃公里吨"
# From the first digit on; what belongs before it is looked for backwards, which is much quicker than trying everywhere.
_NUMBER = re.compile(
    rf"\d(?:[.,:/×x^eE–-]*+\d)*+[{_CJK_UNITS}]*+(?:(?:st|nd|rd|th|\.)?\s(?:of\s)?(?:{_MONTHS})\b\.?(?:,?\s\d{{2,4}}\b)?"
    rf"|(?:st|nd|rd|th)\b(?:,\s\d{{4}}\b)?|,\s(?:1|2)\d{{3}}\b|[\s-]?(?:{_UNITS})(?![^\W_]))?"
)
_BEFORE_NUMBER = re.compile(
    rf"(?:\b(?:{_MONTHS})\.?\s|(?:\b[A-Z]{{2,3}})?[-+±~<>≤≥=$€£¥₹#§]{{1,2}}\s?|\b[A-Za-z]+-?)\Z"
)
_LONGEST_BEFORE = 14
_URL = re.compile(r"(?:\b[a-z][a-z0-9+.-]{0,20}://|\bwww\.)[^\s<>\"'”’）】]+", re.IGNORECASE)
_MAIL = re.compile(r"\b[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+")
_PATH = re.compile(r"(?<![\w.])(?:~|\.{1,2}|[A-Za-z]:)?(?:[\\/][\w.@%+-]+){2,}[\\/]?")
_DOTTED = re.compile(r"\b\w++(?:\.\w++){2,}+")
_TICKS = re.compile(r"```[\s\S]*?(?:```|\Z)|`[^`\n]+`")
_CALL = re.compile(r"\b\w{1,64}(?:\.\w{1,64}){0,8}\([^()\n]*\)")
_SNAKE = re.compile(r"\b[A-Za-z](?=\w*_\w)\w++")
_OPTION = re.compile(r"(?<!\S)--?[A-Za-z][\w-]*=?\S*")
_BRACES = re.compile(r"\{[^{}\n]*\}|\[[^\[\]\n]*\]|<[A-Za-z/][^<>\n]*>")
_OPERATOR = re.compile(r"\b\w+\s?(?:==|!=|<=|>=|:=|=>|->|\+=|&&|\|\|)\s?\S+")
_QUOTE = re.compile(
    r"“[^“”]{1,400}”|„[^„“”]{1,400}[“”]|«[^«»]{1,400}»|「[^「」]{1,400}」|『[^『』]{1,400}』|‘[^‘’\n]{1,200}’(?!\w)"
    r"|(?<![\w\"])\"[^\"\n]{1,400}\"(?!\w)|(?<![\w'])'[^'\n]{2,200}'(?!\w)"
)
_TABLE_LINE = re.compile(r"^[^\n|]*\|[^\n|]*\|[^\n]*$|^[^\n\t]+\t[^\n\t]+\t[^\n]*$", re.MULTILINE)
_NEGATION = (
    r"not|no|never|none|nobody|nothing|nowhere|neither|nor|without|cannot|unless|except|hardly|barely|scarcely|lacks?|"
    r"fail(?:s|ed)?\sto|\w+n['’]t|nicht|kein\w*|nie|niemals|ohne|weder|noch|außer|ne|pas|jamais|sans|aucune?|ni|nunca|"
    r"sin|jamás|ningun\w*|não|nem|sem|non|mai|senza|не|ни|нет|без|никогда|nie|bez|niet|geen|zonder|inte|ikke|ej"
)
# With two words after it, and the verb before: "is not a suspect", "kein einziges Mal".
_NEGATED = re.compile(rf"\b(?:{_NEGATION})\b(?:[ \t]+[^\s,;.!?]+){{0,2}}", re.IGNORECASE)
_WORD_BEFORE = re.compile(r"[^\W\d]+[ \t]+\Z")
_LONGEST_WORD = 24
_NEGATED_DENSE = re.compile(
    f"(?:不|没有?|沒有?|無|无|未|非|勿|莫|别)[{DENSE}]{{1,3}}|[{DENSE}]{{1,3}}(?:ない|ません|なかった|ず|ぬ)|ไม่[{DENSE}]{{1,4}}"
)
_CAPITAL = "A-ZÀ-ÖØ-ÞŁŚŠŽČĆŃŐŰΑ-ΩА-ЯЁ"
_NAME = re.compile(
    rf"(?<![\w'’])(?<!\w\.)[{_CAPITAL}][\w'’.]{{0,40}}+"
    rf"(?:[ -](?:(?:of|de|du|von|van|der|la|al|the)[ ])?[{_CAPITAL}][\w'’]*)+"
)


@dataclass(frozen=True, slots=True)
class Guards:
    """`locked` spans stay whole wherever their unit stays; `bound` spans stay or go as one piece. Sorted, disjoint."""

    locked: tuple[Span, ...]
    bound: tuple[Span, ...]


# Each pattern with a character without which it cannot match: most prose has none of them.
_LOCKED = (
    (":/", _URL),
    ("www.", _URL),
    ("@", _MAIL),
    ("/", _PATH),
    ("\\", _PATH),
    (".", _DOTTED),
    ("`", _TICKS),
    ("(", _CALL),
    ("_", _SNAKE),
    ("-", _OPTION),
    ("{", _BRACES),
    ("[", _BRACES),
    ("<", _BRACES),
    ("=", _OPERATOR),
    ("->", _OPERATOR),
    ("&&", _OPERATOR),
    ("||", _OPERATOR),
    ("|", _TABLE_LINE),
    ("\t", _TABLE_LINE),
    ("", _QUOTE),
)


def find_guards(text: str) -> Guards:
    """Numbers with their units, addresses, code, tables and quotations are locked.

    Bound are a negation with what it negates, and a name of several words. Offsets count code points of `text`.
    """
    patterns = dict.fromkeys(pattern for mark, pattern in _LOCKED if mark in text)
    locked = [match.span() for pattern in patterns for match in pattern.finditer(text)]
    locked += [
        (_before(_BEFORE_NUMBER, text, match.start(), _LONGEST_BEFORE), match.end())
        for match in _NUMBER.finditer(text)
    ]
    bound = [
        (_before(_WORD_BEFORE, text, match.start(), _LONGEST_WORD), match.end())
        for match in _NEGATED.finditer(text)
    ]
    bound += [match.span() for pattern in (_NEGATED_DENSE, _NAME) for match in pattern.finditer(text)]
    return Guards(tuple(_merged(locked)), tuple(_merged(bound)))


def _before(pattern: re.Pattern[str], text: str, at: int, longest: int) -> int:
    """Where what the pattern finds right before `at` begins; `at` where it finds nothing."""
    found = pattern.search(text, max(0, at - longest), at)
    return found.start() if found else at


def _merged(spans: Iterable[Span]) -> list[Span]:
    """Overlapping spans made one, in order."""
    out: list[Span] = []
    for start, end in sorted(spans):
        if out and start < out[-1][1]:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        elif end > start:
            out.append((start, end))
    return out


# ruff: noqa: RUF001 - marks of other scripts are intended


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
            inner = starts[bisect_right(starts, part.start()) : bisect_left(starts, part.end())]
            # Of one character there may be several tokens.
            cuts += dict.fromkeys(inner)
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
