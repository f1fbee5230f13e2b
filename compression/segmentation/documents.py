"""Boundaries between retrieved documents: the common ways of writing several into one context."""

# Some marks of other scripts look like ASCII ones; they are intended.
# ruff: noqa: RUF001

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from compression.segmentation.code_regions import names_file
from compression.segmentation.lines import (
    HEADING,
    SPEAKER,
    Line,
    ends_sentence,
    is_blank,
    looks_like_title,
)
from compression.segmentation.tables import separated_until

_NAMES = (
    "Document|Doc|Passage|Source|Context|Reference|Ref|Chunk|Result|Snippet|Article|Page|Section|Text|File|Evidence"
    "|Dokument|Quelle|Artikel|Fuente|Documento|Texte|文档|文章|段落|资料|文書"
)
# "Document [3](Title: Rachel Tucker) text", "Passage 2: text", "**Source #4** - text"
_LABELLED = re.compile(
    rf"[ \t]*(?:#{{1,6}}[ \t]*)?\*{{0,2}}\[?(?:{_NAMES})[ \t]?"
    r"(?:\[[ \t]*\#?\d+[ \t]*\]|\([ \t]*\d+[ \t]*\)|\#?\d+(?=[ \t]*[\])*:.(–—-]|[ \t]*\Z))\]?\*{0,2}"
    r"(?P<title>[ \t]*\([ \t]*+Title:[ \t]*+(?:[^()\n]|\([^()\n]*\)){0,300}\))?"
    r"[ \t]*(?:[:：.–—-]\*{0,2}(?=\s|\Z))?",
    re.IGNORECASE,
)
_TAG = re.compile(
    r"[ \t]*<(?P<name>document|doc|passage|source|context|chunk|article|result|page|item|file|snippet|text)"
    r"(?:\s[^<>\n]{0,300})?>",
    re.IGNORECASE,
)
_TITLED = re.compile(
    r"[ \t]*\*{0,2}(?:title|titel|titre|título|titolo|headline|标题|題名)\*{0,2}[ \t]*[:：]\*{0,2}[ \t]*\S",
    re.IGNORECASE,
)
_NUMBERED = re.compile(r"[ \t]*\[(\d{1,4})\][:.]?(?=\s|\Z)")
_RULE = re.compile(r"[ \t]*(?:-{3,}|\*{3,}|={3,}|_{3,}|#{3,}|~{5,})[ \t]*\Z")
_FEWEST_SECTIONS = 3
_COMMENTS = ("#", ";", "--", "//")
# A word behind another, where a sentence ends; in some scripts nothing is between words.
_SENTENCE = re.compile(r"(?:[ \t][^\s.!?…]{1,40}[.!?…]|[。！？।؟۔])[\"'”’»)\]*]{0,3}(?=\s|\Z|[^\x00-\x7f])")
_TOP_HEADING = re.compile(r"[ \t]{0,3}#[ \t]+\S")


@dataclass(frozen=True, slots=True)
class Part:
    """Lines `[first, last)` are one document; `heading` is the span of what names it, `body` where its text begins.

    `opening` and `closing` are spans of tags around it, None where there are none.
    """

    first: int
    last: int
    heading: tuple[int, int] | None
    body: int
    opening: tuple[int, int] | None = None


def split_documents(source: str, lines: Sequence[Line], free: Sequence[bool]) -> list[Part]:
    """The documents of the source, in order, without gaps. `free[i]` is false for a line inside a code fence."""
    candidates = [number for number, line in enumerate(lines) if free[number] and line.end > line.start]
    filed = _cut(lines, _files(source, lines, candidates, free), _whole_line(lines))
    if filed:
        return _with_preamble(source, lines, filed)
    for style in (_labelled, _tagged, _titled, _numbered, _ruled, _top_headings, _headings, _title_lines):
        parts = style(source, lines, candidates)
        if parts:
            return _with_preamble(source, lines, parts)
    is_code = not candidates or any(line.end > line.start for line in lines[: candidates[0]])
    return [Part(0, len(lines), None, lines[0].start) if is_code else _untitled(source, lines, 0, len(lines))]


def _files(source: str, lines: Sequence[Line], candidates: Sequence[int], free: Sequence[bool]) -> list[int]:
    """Lines that name a file whose code follows; none where there is one alone."""
    if len(candidates) == len(lines):
        return []
    found = []
    for number in candidates:
        below = number + 1
        while below < len(lines) and is_blank(source, lines[below]) and below - number < 4:
            below += 1
        if below < len(lines) and not free[below] and names_file(source, lines[number]):
            found.append(number)
    return found if len(found) > 1 else []


def names_documents(source: str, lines: Sequence[Line], free: Sequence[bool]) -> bool:
    """True where one of `lines` is marked as the beginning of a document by what no other text begins a line with."""
    candidates = [number for number, line in enumerate(lines) if free[number] and line.end > line.start]
    return any(_matching(pattern, source, lines, candidates) for pattern in (_LABELLED, _TAG, _TITLED))


def _with_preamble(source: str, lines: Sequence[Line], parts: list[Part]) -> list[Part]:
    first = parts[0].first
    if any(not is_blank(source, line) for line in lines[:first]):
        return [_untitled(source, lines, 0, first), *parts]
    return parts


def _matching(
    pattern: re.Pattern[str], source: str, lines: Sequence[Line], candidates: Sequence[int]
) -> list[int]:
    return [number for number in candidates if pattern.match(source, lines[number].start, lines[number].end)]


def _labelled(source: str, lines: Sequence[Line], candidates: Sequence[int]) -> list[Part]:
    starts = _matching(_LABELLED, source, lines, candidates)

    def read(first: int, last: int) -> Part:
        line = lines[first]
        found = _LABELLED.match(source, line.start, line.end)
        assert found is not None
        end = found.end()
        rest = source[end : line.end]
        if not found.group("title") and looks_like_title(rest) and _text_follows(source, lines, first, last):
            end = line.end
        return Part(first, last, (line.start, end), end)

    return _cut(lines, starts, read)


def _tagged(source: str, lines: Sequence[Line], candidates: Sequence[int]) -> list[Part]:
    starts = _matching(_TAG, source, lines, candidates)

    def read(first: int, last: int) -> Part:
        line = lines[first]
        found = _TAG.match(source, line.start, line.end)
        assert found is not None
        return Part(first, last, None, found.end(), opening=(line.start, found.end()))

    # The outer tag of many, as <documents> is, holds nothing itself; a lone tag may be any markup.
    return _cut(lines, starts, read)


def _titled(source: str, lines: Sequence[Line], candidates: Sequence[int]) -> list[Part]:
    return _cut(lines, _matching(_TITLED, source, lines, candidates), _whole_line(lines))


def _numbered(source: str, lines: Sequence[Line], candidates: Sequence[int]) -> list[Part]:
    starts = _matching(_NUMBERED, source, lines, candidates)
    numbers = []
    for number in starts:
        found = _NUMBERED.match(source, lines[number].start, lines[number].end)
        assert found is not None
        numbers.append(int(found.group(1)))
    if len(numbers) < 2 or any(after <= before for before, after in pairwise(numbers)):
        return []

    def read(first: int, last: int) -> Part:
        line = lines[first]
        found = _NUMBERED.match(source, line.start, line.end)
        assert found is not None
        end = found.end()
        if looks_like_title(source[end : line.end]) and _text_follows(source, lines, first, last):
            end = line.end
        return Part(first, last, (line.start, end), end)

    return _cut(lines, starts, read)


def _ruled(source: str, lines: Sequence[Line], candidates: Sequence[int]) -> list[Part]:
    rules = [
        number
        for number in _matching(_RULE, source, lines, candidates)
        if _stands_alone(source, lines, number)
    ]
    if not rules:
        return []
    parts = []
    starts = [0, *(number + 1 for number in rules)]
    for first, last in zip(starts, [*rules, len(lines)], strict=True):
        if any(not is_blank(source, line) for line in lines[first:last]):
            parts.append(_untitled(source, lines, first, last))
    return parts if len(parts) > 1 else []


def _stands_alone(source: str, lines: Sequence[Line], number: int) -> bool:
    """False for the rule under a heading: a short line right above it that ends no sentence."""
    if number == 0 or is_blank(source, lines[number - 1]):
        return True
    above = source[lines[number - 1].start : lines[number - 1].end]
    return not (looks_like_title(above) and (number == 1 or is_blank(source, lines[number - 2])))


def _top_headings(source: str, lines: Sequence[Line], candidates: Sequence[int]) -> list[Part]:
    starts = _matching(_TOP_HEADING, source, lines, candidates)
    return _cut(lines, starts, _whole_line(lines)) if len(starts) > 1 else []


def _headings(source: str, lines: Sequence[Line], candidates: Sequence[int]) -> list[Part]:
    """The sections of one document in Markdown, whatever their level; comments of other languages look the same."""
    starts = [
        number
        for number in _matching(HEADING, source, lines, candidates)
        if number == 0 or is_blank(source, lines[number - 1])
    ]
    if len(starts) < _FEWEST_SECTIONS:
        return []
    sections = [
        _is_section(source, lines[first:last])
        for first, last in zip(starts, [*starts[1:], len(lines)], strict=True)
    ]
    return _cut(lines, starts, _whole_line(lines)) if 2 * sum(sections) > len(sections) else []


def _is_section(source: str, lines: Sequence[Line]) -> bool:
    """A heading with an empty line under it, or a line where a sentence ends that is no comment."""
    if len(lines) > 1 and is_blank(source, lines[1]):
        return True
    texts = (source[slice(*line)].lstrip() for line in lines[1:])
    return any(not text.startswith(_COMMENTS) and _SENTENCE.search(text) is not None for text in texts)


def _title_lines(source: str, lines: Sequence[Line], candidates: Sequence[int]) -> list[Part]:
    """Blocks between blank lines, where most begin with a short line that names the text under it."""
    blocks = [number for number in candidates if number == 0 or is_blank(source, lines[number - 1])]
    blocks = [number for number in blocks if not is_blank(source, lines[number])]
    titled = [
        number
        for number in blocks
        if _is_title_line(source, lines, number) or _is_said_again(source, lines, number)
    ]
    if len(titled) < 2 or len(titled) * 5 < len(blocks) * 3:
        return []
    # Where most have one, so have those whose text is short, or whose name ends in a mark or begins as a list does.
    named = [number for number in blocks if _may_be_title(source, lines, number)]
    return _cut(lines, sorted({*titled, *named}), _whole_line(lines))


def _is_said_again(source: str, lines: Sequence[Line], number: int) -> bool:
    """A short line whose words begin the next one: `Peter Levin` above `Peter Levin is a director.`"""
    line = lines[number]
    name = source[line.start : line.end].split("(")[0].rstrip()
    if not 3 < len(name) <= 120 or number + 1 == len(lines) or not name[0].isalnum():
        return False
    below = lines[number + 1]
    return below.end - below.start > line.end - line.start and source.startswith(name, below.start)


def _may_be_title(source: str, lines: Sequence[Line], number: int) -> bool:
    """A short line above one that is much longer, or above a single longer one that is a sentence."""
    line = lines[number]
    length = line.end - line.start
    if length > 120 or number + 1 == len(lines) or source[line.start].isspace():
        return False
    below = lines[number + 1]
    text = source[line.start : line.end]
    if not any(character.isalnum() for character in text[:40]) or is_blank(source, below):
        return False
    if below.end - below.start >= 2 * length:
        return True
    is_last = number + 2 >= len(lines) or is_blank(source, lines[number + 2])
    is_sentence = ends_sentence(source[below.start : below.end]) and not ends_sentence(text)
    return is_last and is_sentence and below.end - below.start > length


def _is_title_line(source: str, lines: Sequence[Line], number: int) -> bool:
    line = lines[number]
    if line.end - line.start > 120 or number + 1 == len(lines) or HEADING.match(source, line.start, line.end):
        return False
    below = lines[number + 1]
    text = source[line.start : line.end]
    if SPEAKER.match(text) or not looks_like_title(text):
        return False
    if separated_until(source, lines[number : number + 3], 0):
        # The head of a table.
        return False
    length = below.end - below.start
    return length >= 80 and length >= 2 * len(text) and source[line.start].isspace() is False


def _text_follows(source: str, lines: Sequence[Line], first: int, last: int) -> bool:
    return any(not is_blank(source, line) for line in lines[first + 1 : min(last, first + 4)])


def _untitled(source: str, lines: Sequence[Line], first: int, last: int) -> Part:
    """A document without a marker: its first line names it where it looks like a title with text under it."""
    start = lines[first].start if first < len(lines) else len(source)
    for number in range(first, min(last, first + 50)):
        line = lines[number]
        if is_blank(source, line):
            continue
        if _TITLED.match(source, line.start, line.end) or _TOP_HEADING.match(source, line.start, line.end):
            return Part(first, last, (line.start, line.end), line.end)
        if number + 1 < last and _is_title_line(source, lines, number):
            return Part(first, last, (line.start, line.end), line.end)
        break
    return Part(first, last, None, start)


def _whole_line(lines: Sequence[Line]) -> Callable[[int, int], Part]:
    return lambda first, last: Part(first, last, (lines[first].start, lines[first].end), lines[first].end)


def _cut(lines: Sequence[Line], starts: Sequence[int], read: Callable[[int, int], Part]) -> list[Part]:
    return (
        [read(first, last) for first, last in zip(starts, [*starts[1:], len(lines)], strict=True)]
        if starts
        else []
    )
