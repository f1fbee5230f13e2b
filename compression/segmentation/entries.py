"""Lines that begin an entry of a transcript, a ticket or a mail thread, told by their shape and not by their words."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from compression.segmentation.code import is_log_line, is_mostly_log
from compression.segmentation.headings import is_governed, is_outline, level_of, parting, speaking
from compression.segmentation.lines import SPEAKER, Line, is_blank, trimmed
from compression.source.units import SegmentationSettings

# Some marks of other scripts look like ASCII ones; they are intended.
# ruff: noqa: RUF001


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
_HEADING = re.compile(r"(?P<level>#{1,6})[ \t]+(?P<key>\S.{0,40})\Z")
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
_DATED_HEAD = re.compile(rf"(?:[-*=_#]{{1,8}}[ \t]*)?[\[(]?(?:[^\W\d_]{{2,12}}\.?,?[ \t])?{_DAY}(?![\d-])")
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
    found = _DATED_HEAD.match(source, *line)
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
    return number + 1 < len(lines) and all(
        _DATED_HEAD.match(source, *line) for line in lines[number : number + 2]
    )


def _after_clock(source: str, at: int, end: int) -> int:
    """Where the time of day behind a date ends, so that its colons are not taken for one that ends a name."""
    found = _CLOCK.search(source, at, min(end, at + 24))
    return found.end() if found else at


def _rule(source: str, line: Line, end: int) -> Head | None:
    found = _RULED.match(source, *line) if end == line.end else None
    return None if found is None else Head("rule", _plain(found["key"].rstrip("-=*_#~ \t")), end)


def _heading(source: str, line: Line, end: int) -> Head | None:
    found = _HEADING.match(source, *line) if end == line.end else None
    return None if found is None else Head("heading", f"{found['level']} {_plain(found['key'])}", end)


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


@dataclass(frozen=True, slots=True)
class Entry:
    """Lines `[first, last)`. `head` is the span of what begins it, `body` where the rest begins.

    `closing` is the span of the closing tag of an entry in tags.
    """

    first: int
    last: int
    head: tuple[int, int]
    body: int
    closing: tuple[int, int] | None = None
    kind: HeadKind = "role"


# Kinds of heads that occur together in one text: the kind of the first says which others count.
_TOGETHER: dict[HeadKind, frozenset[HeadKind]] = {
    "role": frozenset({"role", "capitals", "tag"}),
    "capitals": frozenset({"role", "capitals", "tag"}),
    "marker": frozenset({"marker", "tag"}),
    "tag": frozenset({"tag", "role"}),
    "heading": frozenset({"heading", "tag"}),
    "dated": frozenset({"dated", "rule", "mail"}),
    "rule": frozenset({"dated", "rule", "mail"}),
    "mail": frozenset({"dated", "rule", "mail"}),
}
_DATED: frozenset[HeadKind] = frozenset({"dated", "rule", "mail"})
_MARKS_OF_STRUCTURE = frozenset("{|`#>+-")
_BARE = re.compile(r"[\s=*_#~-]*+")
_JSON = re.compile(r"[ \t]*(?:\{|\[[ \t]*(?:[\"\[{\]0-9-]|\Z))")
# Other heads follow an empty line: elsewhere they are lines of a log, or words of prose.
_ANYWHERE: frozenset[HeadKind] = frozenset({"role", "marker", "tag"})
_LEAST_LONG = 0.2
_LONGEST_TURN = 400
_Found = dict[int, Head]


def split_entries(
    source: str, lines: Sequence[Line], free: Sequence[bool]
) -> tuple[list[Entry], Sequence[Line]]:
    """The entries of the source in order, and its lines, those of mails without their marks of quotation.

    The list is empty where it has none; what comes before the first belongs to none. `free[i]` is false for a line
    inside a code fence.
    """
    bare = unquoted(source, lines)
    if bare is not None:
        entries = _entries(source, bare, free, is_quoted=True)
        if entries:
            return entries, bare
    return _entries(source, lines, free, is_quoted=False), lines


def _entries(source: str, lines: Sequence[Line], free: Sequence[bool], *, is_quoted: bool) -> list[Entry]:
    heads = _recurring(source, lines, _heads(source, lines, free), is_quoted=is_quoted)
    if heads and _begins_as_log(source, lines, heads):
        return []
    entries = _between(source, lines, heads) if heads else []
    return entries if entries and _is_worth_it(source, lines, entries) else []


def _heads(source: str, lines: Sequence[Line], free: Sequence[bool]) -> _Found:
    found: _Found = {}
    end = -1
    for number, line in enumerate(lines):
        if not free[number] or line.start < end:
            continue
        is_first = number == 0 or _ends_block(source, lines[number - 1]) or _is_rule(found.get(number - 1))
        head = mail_head(source, lines, number) if is_first else None
        head = head or head_of(source, line)
        if head is None or (is_first and is_logged(source, lines, number)):
            continue
        if is_first or head.kind in _ANYWHERE:
            if head.kind == "mail" and _is_rule(found.get(number - 1)):
                # A rule and the fields under it are one head.
                number -= 1
            found[number] = head
            end = head.end
    return found


def _begins_as_log(source: str, lines: Sequence[Line], heads: _Found) -> bool:
    """A log whose entries have names and colons under them here and there: it begins with none of these heads."""
    first = next(number for number, line in enumerate(lines) if not is_blank(source, line))
    return first not in heads and is_log_line(source, lines[first]) and is_mostly_log(source, lines)


def _ends_block(source: str, line: Line) -> bool:
    """An empty line, or one of nothing but marks."""
    return _BARE.fullmatch(source, *line) is not None


def _is_rule(head: Head | None) -> bool:
    return head is not None and head.kind == "rule"


def _recurring(source: str, lines: Sequence[Line], found: _Found, *, is_quoted: bool) -> _Found:
    """The heads that go with the first one that comes back; of a text with quotations only those of mails."""
    times = Counter((head.kind, head.key) for head in found.values())
    first = next((head for head in found.values() if times[head.kind, head.key] > 1), None)
    if first is None or (is_quoted and first.kind not in _DATED):
        return {}
    if first.kind == "heading":
        headings = {number: head.key for number, head in found.items() if head.kind == "heading"}
        speakers = speaking(headings)
        if speakers:
            names = {number: source[slice(*lines[number])] for number in headings}
            if is_governed(headings, speakers, names):
                return {}
            apart = parting(headings, speakers)
            found = {
                number: head for number, head in found.items() if head.kind != "heading" or number in apart
            }
        elif is_outline(headings, level_of(first.key)):
            return {}
    opening = next(iter(found))
    heads = {
        number: head
        for number, head in found.items()
        if head.kind in _TOGETHER[first.kind]
        and (times[head.kind, head.key] > 1 or head.kind == "rule" or number == opening)
    }
    if first.kind in _DATED:
        return heads
    return heads if len(heads) >= 3 and len({head.key for head in heads.values()}) >= 2 else {}


def _between(source: str, lines: Sequence[Line], heads: _Found) -> list[Entry]:
    numbers = list(heads)
    entries = []
    for first, last in zip(numbers, [*numbers[1:], len(lines)], strict=True):
        head = heads[first]
        span = (lines[first].start, head.end)
        closing = _closing(source, lines, head, first, last) if head.kind == "tag" else None
        entries.append(Entry(first, last, span, head.end, closing, head.kind))
    return entries


def _closing(source: str, lines: Sequence[Line], head: Head, first: int, last: int) -> tuple[int, int] | None:
    """The tag that closes the one of `head`, where it ends the last line with text."""
    mark = f"</{head.key}>"
    for number in range(last - 1, first - 1, -1):
        if not is_blank(source, lines[number]):
            end = lines[number].start + len(source[slice(*lines[number])].rstrip())
            is_closed = source.endswith(mark, max(head.end, lines[number].start), end)
            return (end - len(mark), end) if is_closed else None
    return None


def _is_worth_it(source: str, lines: Sequence[Line], entries: Sequence[Entry]) -> bool:
    """Whether bodies of several lines, or of JSON, make up a fair share, and what precedes the first is less."""
    start, end = lines[entries[0].first].start, lines[-1].end
    if start > end - start:
        return False
    long = [entry for entry in entries if _is_long(source, lines, entry)]
    size = sum(lines[entry.last - 1].end - entry.head[0] for entry in long)
    return len(long) >= 2 and size >= _LEAST_LONG * (end - start)


def _is_long(source: str, lines: Sequence[Line], entry: Entry) -> bool:
    """JSON, a body under its head, or more lines than one that was wrapped."""
    body = trimmed(lines[entry.first : entry.last], entry.body)
    if _JSON.match(source, *body[0]) is not None:
        return True
    filled = [line for line in body[1:] if not is_blank(source, line)]
    return bool(filled) and (is_blank(source, body[0]) or filled[-1].end - entry.head[0] > _LONGEST_TURN)


def is_turn(source: str, body: Sequence[Line], settings: SegmentationSettings) -> bool:
    """True where an entry is its head and a text behind it, wrapped or not, that is short enough to stay whole."""
    filled = [line for line in body if not is_blank(source, line)]
    if not filled or is_blank(source, body[0]) or filled[-1] != body[len(filled) - 1]:
        return False
    return (
        all(_is_plain(source, line) for line in filled)
        and filled[-1].end - body[0].start <= settings.longest_block
    )


def _is_plain(source: str, line: Line) -> bool:
    """No JSON, list, table, fence or quotation, and not indented."""
    text = source[line.start : line.start + 40]
    return (
        not text.startswith("  ") and text.lstrip()[:1] not in _MARKS_OF_STRUCTURE and not _JSON.match(text)
    )
