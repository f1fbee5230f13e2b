"""Lines that begin an entry of a transcript, a ticket or a mail thread, told by their shape and not by their words."""

# Some marks of other scripts look like ASCII ones; they are intended.
# ruff: noqa: RUF001

import re
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from compression.segmentation.lines import SPEAKER, Line

HeadKind = Literal["role", "marker", "capitals", "heading", "tag", "dated", "rule", "mail"]


class Head(NamedTuple):
    """Head of an entry in a line, up to offset `end`. Heads of one `key` say the same of who or what it is."""

    kind: HeadKind
    key: str
    end: int


_LONGEST = 160
_FEWEST_FIELDS, _MOST_FIELDS = 3, 12
_FEWEST_QUOTED = 3
_QUOTED = re.compile(r"[ \t]?(?:>++[ \t]?)++")
_MARKER = re.compile(r"\[(?P<key>[^\W\d_][\w .:/#-]{0,40})\]:?|<\|(?P<token>\w{1,30})\|>(?P<name>\w{0,20})")
_TAG = re.compile(r"<(?P<key>[a-zA-Z][\w:-]{1,30})(?:[ \t][^<>\n]{0,200})?>")
_CAPITALS = re.compile(r"[^\W\d_]{3,20}(?:[ _][^\W\d_]{2,20}){0,2}:?[ \t]*\Z")
_HEADING = re.compile(r"#{1,6}[ \t]+(?P<key>\S.{0,40})\Z")
# After a colon of Chinese or Japanese no space follows, whatever does.
_WIDE_ROLE = re.compile(r"[^\W\d_][\w.'-]{0,14}：(?=\S)")
_DIGITS = re.compile(r"[\d#]+|\([^()]{0,60}\)|\*")
# A day in numbers of any order, or with the name of a month in any language.
_DAY = (
    r"(?:\d{4}[-/.年][ \t]?\d{1,2}[-/.月][ \t]?\d{1,2}日?|\d{1,2}[./-](?:\d{1,2}|[^\W\d_]{3,9})[./-]\d{2,4}"
    r"|\d{4}년 ?\d{1,2}월 ?\d{1,2}일|\d{1,2}\.?(?: de| of)? [^\W\d_]{3,12}\.?,?(?: de)? \d{4}"
    r"|[^\W\d_]{3,12}\.? \d{1,2},? \d{4})"
)
_DATE = re.compile(_DAY)
_DATED = re.compile(rf"(?:[-*=_#]{{1,8}}[ \t]*)?[\[(]?(?:[^\W\d_]{{2,12}}\.?,?[ \t])?{_DAY}(?![\d-])")
_SAID = re.compile(r"[^:：]{0,80}[:：](?=\s|\Z|[^\x00-\x7f])")
_RULED = re.compile(r"[-=*_#~]{3,}+[ \t]*+(?P<key>[^\W_][^\n]*)\Z")
_TIME = re.compile(r"[\s,T]{0,3}[\d:.]{0,12} ?(?:[AaPp]\.?[Mm]\.?)? ?[A-Z]{0,4}[)\]]?")
_CLOCK = re.compile(
    r"\d{1,2}[:.]\d{2}(?:[:.]\d{2}(?:[.,]\d{1,6})?)?(?:[ \t]?[AaPp][Mm]|Z| ?(?:[A-Z]{3,4}|[+-]\d\d:?\d\d)\b)?"
)


def head_of(source: str, line: Line) -> Head | None:
    """The head that a line begins with, None where it has none. It looks at the line's beginning only."""
    start = line.start
    if start == line.end:
        return None
    limited = Line(start, min(line.end, start + _LONGEST))
    for read in _BY_MARK.get(source[start], _BY_LETTER if source[start].isalnum() else ()):
        found = read(source, limited, line.end)
        if found is not None:
            return found
    return None


def _marker(source: str, line: Line, end: int) -> Head | None:
    found = _MARKER.match(source, *line)
    if found is None:
        return None
    return Head("marker", _plain(found["key"] or f"{found['token']} {found['name']}"), found.end())


def _tag(source: str, line: Line, end: int) -> Head | None:
    found = _TAG.match(source, *line)
    return None if found is None else Head("tag", found["key"], found.end())


def _dated(source: str, line: Line, end: int) -> Head | None:
    """A line that begins with a day, up to who says it; or a short one with a day in it that ends in a colon."""
    found = _DATED.match(source, *line)
    is_short = end == line.end
    if found is not None:
        said = _SAID.match(source, _after_clock(source, found.end(), line.end), line.end)
        if said is not None:
            return Head("dated", "said", said.end())
        return Head("dated", "day", end) if is_short else None
    if not is_short or not source[line.start].isalpha():
        return None
    found = _DATE.search(source, *line)
    is_head = found is not None and (source[end - 1] in ":：" or _TIME.fullmatch(source, found.end(), end))
    return Head("dated", "wrote", end) if is_head else None


def is_logged(source: str, lines: Sequence[Line], number: int) -> bool:
    """True where this line begins with a day, and so does the next: lines of a log."""
    return number + 1 < len(lines) and all(_DATED.match(source, *line) for line in lines[number : number + 2])


def _after_clock(source: str, at: int, end: int) -> int:
    """Where the time of day behind a date ends, so that its colons are not taken for one that ends a name."""
    found = _CLOCK.search(source, at, min(end, at + 24))
    return found.end() if found else at


def _rule(source: str, line: Line, end: int) -> Head | None:
    found = _RULED.match(source, *line) if end == line.end else None
    return None if found is None else Head("rule", _plain(found["key"].rstrip("-=*_#~ \t")), end)


def _heading(source: str, line: Line, end: int) -> Head | None:
    found = _HEADING.match(source, *line) if end == line.end else None
    return None if found is None else Head("heading", _plain(found["key"]), end)


def _capitals(source: str, line: Line, end: int) -> Head | None:
    if end != line.end or not source[line.start].isupper():
        return None
    found = _CAPITALS.match(source, *line)
    text = found.group().rstrip(": \t") if found else ""
    return Head("capitals", _plain(text), end) if text and text == text.upper() != text.lower() else None


def _role(source: str, line: Line, end: int) -> Head | None:
    if source.find(":", *line) < 0 and source.find("：", *line) < 0:
        return None
    found = SPEAKER.match(source, *line) or _WIDE_ROLE.match(source, *line)
    return None if found is None else Head("role", _plain(found.group().rstrip(":： ")), found.end())


def _plain(key: str) -> str:
    """`Thought 2`, `**thought**` and `Thought (step 3)` are one."""
    return " ".join(_DIGITS.sub("", key).casefold().split()).strip(":： ")


def mail_head(source: str, lines: Sequence[Line], number: int) -> Head | None:
    """The head of a mail at line `number`: fields, among the first an address; or who wrote when, in two lines."""
    start = lines[number].start
    fields = _fields(source, lines, number)
    address = source.find("@", start, lines[min(number + 1, len(lines) - 1)].end)
    if address < 0:
        return None
    if fields >= _FEWEST_FIELDS:
        return Head("mail", "fields", lines[number + fields - 1].end)
    if number + 1 == len(lines) or not source[start].isalpha():
        return None
    end = lines[number + 1].end
    is_wrapped = (
        end - start <= 2 * _LONGEST and source[end - 1] in ":：" and _DATE.search(source, *lines[number])
    )
    return Head("dated", "wrote", end) if is_wrapped else None


def _fields(source: str, lines: Sequence[Line], number: int) -> int:
    """How many lines from here on are a label and a value, each label another: turns of a talk come back."""
    labels: set[str] = set()
    for line in lines[number : number + _MOST_FIELDS]:
        found = SPEAKER.match(source, *line)
        if found is None or found.group() in labels:
            break
        labels.add(found.group())
    return len(labels)


def unquoted(source: str, lines: Sequence[Line]) -> list[Line] | None:
    """The lines without the marks of quotation that they begin with; None where hardly any has one."""
    if source.count(">") < _FEWEST_QUOTED:
        return None
    found = [_QUOTED.match(source, *line) for line in lines]
    if sum(match is not None for match in found) < _FEWEST_QUOTED:
        return None
    return [
        line if match is None else Line(match.end(), line.end)
        for line, match in zip(lines, found, strict=True)
    ]


_Reader = Callable[[str, Line, int], Head | None]
_BY_LETTER: tuple[_Reader, ...] = (_dated, _capitals, _role)
# By the first letter of a line, since most lines of most texts begin no entry.
_BY_MARK: dict[str, tuple[_Reader, ...]] = {
    "[": (_marker, _dated, _role),
    "(": (_dated,),
    "<": (_marker, _tag),
    "#": (_heading, _dated),
    "*": (_dated, _rule, _role),
    **dict.fromkeys("-=_~", (_dated, _rule)),
}
