"""Code that stands in a text without a fence, and lines that name the file that follows; told by structure alone."""

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from compression.segmentation.code import TRACE_FRAME
from compression.segmentation.definitions import LINE_NUMBER, code_starts
from compression.segmentation.lines import LIST_ITEM, LOG_LINE, Line, is_blank
from compression.segmentation.outputs import OUTPUT_LINE, PRINTED_HEADS, diff_until, failure_until

# Some marks of other scripts look like ASCII ones; they are intended.
# ruff: noqa: RUF001

# `# file: src/a.py`, `// a.go`, `=== lib/a.rb ===`, `**a.ts**`, `src/a.c:`
FILE_LINE = re.compile(
    r"[ \t]{0,3}(?P<mark>#{1,6}|//|--|;|/\*|<!--|={2,}+|-{2,}+|\*{1,2}|>{1,3}|\[)?[ \t]{0,4}"
    r"(?P<label>[^\W\d_]{1,12}[ \t]?:[ \t]*|\d{1,3}[.)][ \t]*)?[`'\"*]{0,3}"
    r"(?P<path>(?:[\w.@~+-]{1,80}[/\\]){0,20}[\w.@+-]{0,80}\.[A-Za-z]\w{0,9}|(?:[\w.@~+-]{1,80}[/\\]){1,20}[\w.-]{1,80})"
    r"[`'\"*]{0,3}(?P<end>[ \t]*(?::|={2,}+|-{2,}+|\*/|-->|\*{1,2}|\]))?[ \t]*\Z"
)
# A statement, a definition, or where a block begins or ends; comments and what is indented say nothing.
_STATEMENT = re.compile(
    r"(?:.{0,400}(?:[{;(\[]|[)\w'\"\]]:|\),?|=>|->|\\)"
    r"|[)\]}]+[;,]?|end"
    r"|[\w.$@*&\[\]'\" ]{0,80}[\w\])'\" ][ \t]?(?::=|[-+*/|&%]?=)(?!=)[ \t]*\S.{0,400}"
    r"|(?:import|from|package|use|using|require\w{0,9}|include)[ \t]++[\w.'\"<{*@][^?!]{0,200}(?<!\.)"
    r"|(?:return|yield|raise|throw|export|def|let|const|var|type|break|continue|pass|else|elsif|do|begin|func|fn"
    r"|class|module|struct|enum)\b[^.?!]{0,200}|#include.{0,80}"
    r"|@\w[\w.]{0,80}|[A-Za-z_][\w.$:!]{0,80}\(.{0,400})\Z",
    re.ASCII,
)
_COMMENT = re.compile(r"#|//|/\*|\*|--|;|\"\"\"|\'\'\'")
# Something is called, defined or ended: names with values alone are settings.
_REMARK = re.compile(r"(?<![ \t])[ \t]++(?:#|//)[ \t].{0,200}\Z")
_MARKS = frozenset("=|{}[]<>\\_")
_ACTS = re.compile(r"[\w\])>]\(|;\Z|[)\w][ \t]?\{\Z", re.ASCII)
# A word as prose has it, with what may stand around it: `Buyer(s)`, `"well",`, `year's`.
_PLAIN = re.compile(
    r"[(\[\"'„“«¿¡]{0,3}[^\W\d_]++(?:['’-][^\W\d_]++)*+(?:\([^\W\d_]{0,30}\)?)?[)\]\"'“”»,;:.!?…]{0,4}"
)
_FEWEST_PLAIN, _LEAST_PLAIN = 5, 0.7
_FEWEST = 4
_FEWEST_ACTS = 2
_WORDS = 4
_LONGEST_LINE = 400


def with_code(source: str, lines: Sequence[Line], fences: Mapping[int, int]) -> dict[int, int]:
    """The first and last lines of `fences`, and of the code that has none; not of fences inside of such code."""
    if "(" not in source and "{" not in source:
        return dict(fences)
    outer = {first: last for first, last in fences.items() if not source[lines[first].start].isspace()}
    borders = {number for first, last in outer.items() for number in range(first, last + 1)}
    borders.update(n for n, line in enumerate(lines) if names_file(source, line))
    cuts = [-1, *sorted(borders), len(lines)]
    # A fence in a comment of one file ends in no other one.
    inner = {
        first: last
        for first, last in fences.items()
        if first not in outer and bisect_left(cuts, first) == bisect_left(cuts, last)
    }
    found = outer | inner
    for before, after in pairwise(cuts):
        for first, last in _regions(source, lines, range(before + 1, after), inner):
            for number in range(first, last + 1):
                found.pop(number, None)
            found[first] = last
    return found


def _regions(
    source: str, lines: Sequence[Line], of: range, fences: Mapping[int, int]
) -> Iterator[tuple[int, int]]:
    """All of the lines `of` where it is code as a whole, as of a file; else the stretches of it that are."""
    if len(of) < _FEWEST:
        return
    foreign: list[int] = []
    first, at, last = of.start, of.start, of.stop
    while at < last:
        after = fences[at] + 1 if at in fences else _foreign_until(source, lines, at)
        foreign += range(at, min(after, last))
        at = max(after, at + 1)
    whole = _region(source, lines, first, last) if len(foreign) * 4 <= last - first else None
    if whole is not None:
        yield whole
        return
    for before, after in pairwise([first - 1, *foreign, last]):
        region = _region(source, lines, before + 1, after) if after - before > _FEWEST else None
        if region is not None:
            yield region


def _foreign_until(source: str, lines: Sequence[Line], at: int) -> int:
    """The line after what is no code and begins at line `at`; `at` itself where that may be code."""
    line = lines[at]
    if is_blank(source, line):
        return at
    if source[line.start : line.start + 24].lstrip().startswith(PRINTED_HEADS):
        for until in (diff_until, failure_until):
            after = until(source, lines, at)
            if after > at:
                return after
    if source[line.start] in " \t":
        return at + any(other.match(source, *line) for other in (TRACE_FRAME, OUTPUT_LINE))
    if LINE_NUMBER.match(source, *line):
        return at
    is_foreign = line.end - line.start > _LONGEST_LINE
    if is_foreign or any(other.match(source, *line) for other in (LOG_LINE, OUTPUT_LINE, LIST_ITEM)):
        return at + 1
    text = _REMARK.sub("", source[line.start : line.end].strip())
    return at + (not (_STATEMENT.match(text) or _COMMENT.match(text)))


def _region(source: str, lines: Sequence[Line], first: int, last: int) -> tuple[int, int] | None:
    """The first and last line of `[first, last)` that are not blank, where most are code and some do something."""
    while first < last and _is_apart(source, lines, first, first + 1):
        first += 1
    while last > first and _is_apart(source, lines, last - 1, last - 2):
        last -= 1
    if last - first < _FEWEST:
        return None
    own = lines[first:last]
    starts = code_starts(source, own)
    texts = [
        _REMARK.sub("", source[start : min(line.end, start + _LONGEST_LINE)].strip())
        for start, line in zip(starts, own, strict=True)
    ]
    is_wordy = [_is_wordy(text) for text in texts]
    bare = [text for text, wordy in zip(texts, is_wordy, strict=True) if not wordy]
    strong = sum(_STATEMENT.match(text) is not None for text in bare)
    acts = sum(_ACTS.search(text) is not None for text in bare)
    outside = [text for text in _outside_strings(texts) if text and not _COMMENT.match(text)]
    said = sum(_is_prose(text) for text in outside)
    is_code = strong >= _FEWEST and acts >= _FEWEST_ACTS and strong * 5 >= len(outside) + 2 * said
    return (first, last - 1) if is_code else None


def _is_apart(source: str, lines: Sequence[Line], number: int, beside: int) -> bool:
    """A blank line, or a sentence before or after the code with a blank line between."""
    text = source[slice(*lines[number])].strip()
    if not text:
        return True
    is_said = text.count(" ") >= 2 and _MARKS.isdisjoint(text) and "(" not in text and text[-1] in ".:?!"
    return is_said and 0 <= beside < len(lines) and is_blank(source, lines[beside])


def names_file(source: str, line: Line) -> bool:
    """True for a line that has the path of a file, with a mark, a label or a colon, and nothing else."""
    found = FILE_LINE.match(source, *line)
    return found is not None and any(found.group(name) for name in ("mark", "label", "end"))


def _is_prose(text: str) -> bool:
    is_long = text.count(" ") >= _WORDS and _MARKS.isdisjoint(text)
    return is_long and (_STATEMENT.match(text) is None or _is_wordy(text))


def _is_wordy(text: str) -> bool:
    """Words and what parts sentences, whatever the line ends in: clauses of a contract end in semicolons."""
    if text.count(" ") < _FEWEST_PLAIN - 1 or not _MARKS.isdisjoint(text):
        return False
    words = text.split()
    return sum(_PLAIN.fullmatch(word) is not None for word in words) >= _LEAST_PLAIN * len(words)


def _outside_strings(texts: Sequence[str]) -> Iterator[str]:
    """Without what stands between two lines with a mark of strings of several lines."""
    is_inside = False
    for text in texts:
        is_mark = text.count('"""') % 2 == 1 or text.count("'''") % 2 == 1
        if not is_inside:
            yield text
        is_inside ^= is_mark
