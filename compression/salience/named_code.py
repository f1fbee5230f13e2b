"""Functions that a stack trace, a compiler or a diff names, by file, name and line: they come before anything else.

One reading for every language: whatever writes `FILE:LINE`, or either in other marks, has the names beside it.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from compression.segmentation.code_regions import FILE_LINE
from compression.segmentation.definitions import LINE_NUMBER, framed_functions
from compression.source.units import FRAMING, Segmentation

# `File "a.py", line 3, in f`, `at f (a.ts:3:9)`, `F.java:3`, `a.cs:line 3`, `a.php(3)`, `--> src/a.rs:3:9`
_PLACE = re.compile(
    r"(?<![\w./\\@+~-])(?P<file>(?:[A-Za-z]:)?[\w./\\@+~-]{0,300}?[\w@+~-]{1,100}\.[A-Za-z]\w{0,7})"
    r"(?:\", line |: ?line |:|\(|, line |\", )(?P<line>\d{1,7})(?![\d.])"
)
_HUNK = re.compile(r"^@@ -\d+(?:,\d+)? \+(?P<line>\d+)(?:,\d+)? @@(?P<names>.{0,200})", re.MULTILINE)
_NEW_FILE = re.compile(r"^\+\+\+ (?:b/)?(?P<file>\S{1,300})", re.MULTILINE)
_NAME = re.compile(r"(?<![\w$])[^\W\d][\w$]*")
_LAST_FIRST = re.compile(r"Traceback \(most recent call last\)|^ *File \"", re.MULTILINE)
_MOST_PLACES = 64
_MOST_NAMES = 32
_LONGEST_LINE = 400
_HUNK_LEAD = 3

_WORDS = (
    "def|class|func|function[*]?|fn|fun|sub|proc|struct|interface|trait|impl|enum|module|type|record|protocol"
)
_DEFINED = re.compile(
    rf"(?:\b(?:{_WORDS})[ \t]+(?:\([^()\n]{{0,80}}\)[ \t]*)?(?:[\w$]{{1,80}}[.:]{{1,2}}){{0,4}}(?P<word>[\w$]{{1,100}})"
    r"|^[ \t]*(?:[\w$.#\[\]<>,*&:~@?]{1,80}[ \t]+[*&]{0,2}){0,6}(?:[\w$]{1,80}(?:::|\.)){0,4}"
    r"(?P<call>[\w$~]{1,100})[ \t]?(?:<[^<>\n]{0,60}>)?\([^;\n]{0,300}$"
    r"|^[ \t]*(?:(?:export|const|let|var|public|private|static|async)[ \t]+){0,4}(?P<value>[\w$.]{1,100})[ \t]*[:=]"
    r"[ \t]*(?:async[ \t]*)?(?:function\b|\([^()\n]{0,200}\)[^=\n]{0,80}=>|[\w$]{1,60}[ \t]*=>))",
    re.MULTILINE,
)
_NO_NAMES = frozenset({
    "if", "for", "while", "switch", "catch", "return", "else", "elif", "match", "when", "with", "assert", "throw",
    "new", "await", "yield", "not", "in", "is", "and", "or",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file, and the names written beside it."""

    file: str
    line: int
    names: frozenset[str]


def places(text: str) -> list[Place]:
    """What `text` names, the innermost call first."""
    found = list(islice(_places(text), _MOST_PLACES))
    return found[::-1] if _LAST_FIRST.search(text) else found


def _places(text: str) -> Iterator[Place]:
    for match in _PLACE.finditer(text):
        start = max(text.rfind("\n", 0, match.start()) + 1, match.start() - _LONGEST_LINE)
        end = text.find("\n", match.end(), match.end() + _LONGEST_LINE)
        beside = text[start : match.start()] + " " + text[match.end() : end if end >= 0 else match.end()]
        names = _names(beside)
        if not names - {"at", "in", "File", "from", "line"}:
            # Go and Rust write the function above the place.
            above = max(text.rfind("\n", 0, max(0, start - 1)) + 1, start - _LONGEST_LINE)
            names = _names(text[above:start])
        yield Place(_base(match["file"]), int(match["line"]), names)
    files = [(match.start(), match["file"]) for match in _NEW_FILE.finditer(text)]
    for match in _HUNK.finditer(text) if files else ():
        at = bisect_right(files, (match.start(), "")) - 1
        if at >= 0:
            yield Place(_base(files[at][1]), int(match["line"]) + _HUNK_LEAD, _names(match["names"]))


def _names(text: str) -> frozenset[str]:
    return frozenset(islice((found.group() for found in _NAME.finditer(text)), _MOST_NAMES))


def _base(path: str) -> str:
    return re.split(r"[/\\]", path)[-1]


@dataclass(frozen=True, slots=True)
class Definition:
    """Lines `first` to `last` of a file, None where no file is named, in units `[start, end)`; the first of these
    ends in line `own_last`."""

    file: str | None
    first: int
    own_last: int
    last: int
    names: frozenset[str]
    start: int
    end: int


def definitions(text: Segmentation) -> list[Definition]:
    """Every piece of code that defines something: a unit, or all that a function's head frames."""
    found: list[Definition] | None = text.readings.get("definitions")
    if found is None:
        found = text.readings["definitions"] = list(_definitions(text))
    return found


def _definitions(text: Segmentation) -> Iterator[Definition]:
    functions = framed_functions(text)
    for document in text.documents:
        file = None if document.title is None else _file_of(text.text(document.title))
        first = line = 0
        at = document.start
        for number in range(*document.units):
            unit = text.units[number]
            line += text.source.count("\n", at, unit.start)
            at = unit.start
            if unit.kind in FRAMING or number == document.title:
                first = line + 1
                continue
            if unit.kind != "code_block":
                continue
            content = text.text(number)
            last = functions.get(number, number)
            shown = LINE_NUMBER.match(content)
            begin = int(shown.group(1)) if shown else line - first + 1
            own = begin + content.count("\n")
            size = text.source.count("\n", unit.end, text.units[last].end) if last > number else 0
            yield Definition(file, begin, own, own + size, _defined(content), number, last + 1)


def _file_of(title: str) -> str | None:
    found = FILE_LINE.match(title)
    return None if found is None else _base(found["path"])


def _defined(code: str) -> frozenset[str]:
    names = (next(filter(None, found.groups())) for found in _DEFINED.finditer(code))
    return frozenset(name for name in names if name not in _NO_NAMES)


def named_units(text: Segmentation, query: str) -> list[int]:
    """The units of the functions that the query names the places of, those of the innermost first."""
    asked = places(query)
    if not asked:
        return []
    known = definitions(text)
    found: dict[int, None] = {}
    lines = {each.start: each for each in known}
    for place in asked:
        for definition in _named(place, known):
            # Of a long function what is nearest to the line first.
            units = range(definition.start, definition.end)
            found.update(
                dict.fromkeys(sorted(units, key=lambda unit: _distance(lines.get(unit), place.line)))
            )
    return list(found)


def _distance(part: Definition | None, line: int) -> int:
    return 0 if part is None else max(0, part.first - line, line - part.own_last)


def _named(place: Place, known: Sequence[Definition]) -> list[Definition]:
    """By name and line; where there is none, by name; else by line. Only in the file, where files have names."""
    own = [each for each in known if each.file == place.file]
    if not own:
        own = [each for each in known if each.file is None]
        return [each for each in own if each.names & place.names]
    by_line = [each for each in own if each.first <= place.line <= each.last]
    by_name = [each for each in own if each.names & place.names]
    return [each for each in by_name if each in by_line] or by_name or by_line


# Above what a scorer gives: what is named was asked for.
_NAMED = 0.999


def with_named(text: Segmentation, scores: Sequence[float], query: str) -> list[float]:
    """The scores, raised for what the query names."""
    raised = list(scores)
    named = named_units(text, query)
    for rank, unit in enumerate(named):
        raised[unit] = max(raised[unit], 1.0 - (1.0 - _NAMED) * (rank + 1) / (len(named) + 1))
    return raised
