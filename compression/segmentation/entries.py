"""Entries of transcripts, tickets and mail threads: a head, and a body of any kind under it.

A text has entries where lines of one shape begin them again and again, and where their bodies are more than the rest
of a line. A meeting whose every turn is one line has none: its turns are units, and it is cut as before.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from compression.segmentation.builder import SegmentationSettings
from compression.segmentation.code import is_log_line, is_mostly_log
from compression.segmentation.entry_heads import Head, HeadKind, head_of, is_logged, mail_head, unquoted
from compression.segmentation.lines import Line, is_blank, trimmed


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
    heads = _recurring(_heads(source, lines, free), is_quoted=is_quoted)
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


def _recurring(found: _Found, *, is_quoted: bool) -> _Found:
    """The heads that go with the first one that comes back; of a text with quotations only those of mails."""
    times = Counter((head.kind, head.key) for head in found.values())
    first = next((head for head in found.values() if times[head.kind, head.key] > 1), None)
    if first is None or (is_quoted and first.kind not in _DATED):
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
