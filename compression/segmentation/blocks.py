"""Reads the lines of one document and hands every run of like lines to the module that cuts its kind."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from compression.segmentation.code import (
    add_entry,
    add_fenced,
    add_trace_lines,
    entry_until,
    indented_until,
    is_log_line,
    is_mostly_log,
    trace_until,
)
from compression.segmentation.definitions import add_code
from compression.segmentation.json_units import JsonFinder, add_fenced_json, add_json_value
from compression.segmentation.lines import FENCE, HEADING, LIST_ITEM, LOG_LINE, PROSE, SPEAKER, Line, is_blank
from compression.segmentation.outputs import (
    OUTPUT_LINE,
    PRINTED_HEADS,
    TREE_HEADS,
    add_diff,
    add_failure,
    add_tree,
    begins_report,
    diff_until,
    failure_until,
    report_until,
    tree_until,
)
from compression.segmentation.prose import add_paragraph, add_sentences, add_turn
from compression.segmentation.tables import (
    add_table,
    aligned_until,
    begins_table,
    drawn_until,
    markdown_until,
    separated_until,
)
from compression.source.units import Builder, SegmentationSettings

_CLOSING_TAG = re.compile(r"[ \t]*</[a-zA-Z_]{1,20}>[ \t]*\Z")
_TITLE_TAG = re.compile(r"[ \t]*<(?:title|source|name|heading)>", re.IGNORECASE)
_UNDERLINE = re.compile(r"[ \t]{0,3}(?:=+|-{2,})[ \t]*\Z")
_PRINTED_SHARE = 10
_SPACE_FIRST = re.compile(r"[ \t]+\S")
_PRINTED = ((failure_until, add_failure), (diff_until, add_diff), (tree_until, add_tree))


@dataclass(frozen=True, slots=True)
class Reading:
    """State shared by all documents of a source. `fences` has first and last lines of code, fenced or not."""

    builder: Builder
    fences: Mapping[int, int]
    json_values: JsonFinder
    settings: SegmentationSettings


class Blocks:
    """One pass over the lines of a document. `offset` is the number of its first line in the source."""

    def __init__(self, reading: Reading, lines: Sequence[Line], offset: int) -> None:
        self._builder = reading.builder
        self._source = reading.builder.source
        self._fences = reading.fences
        self._json_values = reading.json_values
        self._settings = reading.settings
        self._lines = lines
        self._offset = offset
        self._is_dialogue = _is_dialogue(self._source, lines)

    def add(self) -> None:
        at = 0
        while at < len(self._lines):
            at = self._next(at)

    def _next(self, at: int) -> int:
        """Add the block that begins at line `at`; the line after it."""
        if is_blank(self._source, self._lines[at]):
            self._builder.end_paragraph()
            return at + 1
        if self._is_lone_prose(at):
            return self._prose(at)
        for rule in (
            self._fenced,
            self._json,
            self._heading,
            self._trace,
            self._printed,
            self._log,
            self._output,
            self._table,
            self._item,
        ):
            after = rule(at)
            if after > at:
                return after
        if self._is_dialogue and SPEAKER.match(self._source, *self._lines[at]):
            return self._turn(at)
        return self._indented(at) or self._prose(at)

    def _is_lone_prose(self, at: int) -> bool:
        """True for a paragraph of one line, as most have in prose, that none of the rules could begin with."""
        if self._is_dialogue or PROSE.match(self._source, *self._lines[at]) is None:
            return False
        return at + 1 == len(self._lines) or is_blank(self._source, self._lines[at + 1])

    def _fenced(self, at: int) -> int:
        last = self._fences.get(at + self._offset)
        if last is None or last - self._offset >= len(self._lines):
            return at
        lines = self._lines[at : last - self._offset + 1]
        if FENCE.match(self._source, *lines[0]) is None:
            add_code(self._builder, lines, self._settings)
        elif not add_fenced_json(self._builder, lines, self._json_values, self._settings):
            add_fenced(self._builder, lines, self._settings)
        return last - self._offset + 1

    def _json(self, at: int) -> int:
        line = self._lines[at]
        end = self._json_values.end(line.start, self._lines[-1].end)
        if end is None:
            return at
        after = at
        while after < len(self._lines) and self._lines[after].start < end:
            after += 1
        if self._source[end : self._lines[after - 1].end].strip():
            return at
        if end - line.start > self._settings.longest_block:
            add_json_value(self._builder, line.start, end, self._settings)
        else:
            self._builder.add(line.start, end, "json_member")
        self._builder.end_paragraph()
        return after

    def _heading(self, at: int) -> int:
        line = self._lines[at]
        after = at + 1
        if _TITLE_TAG.match(self._source, *line):
            self._builder.set_title(self._builder.add(*line, "heading"))
        elif HEADING.match(self._source, *line):
            self._builder.add(*line, "heading")
        elif self._is_underlined(at):
            after = at + 2
            self._builder.add(line.start, self._lines[at + 1].end, "heading")
        else:
            return at
        self._builder.end_paragraph()
        return after

    def _is_underlined(self, at: int) -> bool:
        if at + 1 >= len(self._lines) or self._lines[at].end - self._lines[at].start > 120:
            return False
        return _UNDERLINE.match(self._source, *self._lines[at + 1]) is not None

    def _trace(self, at: int) -> int:
        after = trace_until(self._source, self._lines, at)
        if after > at:
            add_trace_lines(self._builder, self._lines[at:after], self._settings)
            self._builder.end_paragraph()
        return after

    def _printed(self, at: int) -> int:
        """What a program printed of a kind that has heads: a failed test, a diff, a directory tree."""
        line = self._lines[at]
        begins = self._source[line.start : line.start + 24].lstrip().startswith(PRINTED_HEADS)
        if not begins and not (
            at + 1 < len(self._lines) and self._source.startswith(TREE_HEADS, self._lines[at + 1].start)
        ):
            return at
        for until, add in _PRINTED:
            after = until(self._source, self._lines, at)
            if after > at:
                add(self._builder, self._lines[at:after], self._settings)
                return after
        return at

    def _output(self, at: int) -> int:
        after = at
        while after < len(self._lines):
            first = after
            after = report_until(self._source, self._lines, first, 2 * self._settings.longest_block)
            if after > first:
                self._builder.add(self._lines[first].start, self._lines[after - 1].end, "line")
            elif OUTPUT_LINE.match(self._source, *self._lines[after]):
                add_sentences(self._builder, *self._lines[after], self._settings, "line", whole=True)
                after += 1
            else:
                break
        if after > at:
            self._builder.end_paragraph()
        return after

    def _table(self, at: int) -> int:
        after, header = markdown_until(self._source, self._lines, at), 2
        if after == at:
            after, header = drawn_until(self._source, self._lines, at)
        if after == at and not self._is_dialogue:
            after, header = aligned_until(self._source, self._lines, at), 1
        if after > at:
            add_table(self._builder, self._lines[at:after], header, self._settings)
            return after
        if self._is_dialogue or LOG_LINE.match(self._source, *self._lines[at]):
            return at
        after = separated_until(self._source, self._lines, at)
        if after > at:
            add_table(self._builder, self._lines[at:after], 1, self._settings)
        return after

    def _log(self, at: int) -> int:
        if not is_log_line(self._source, self._lines[at]):
            return at
        after = at
        while after < len(self._lines) and is_log_line(self._source, self._lines[after]):
            first = after
            after = entry_until(self._source, self._lines, first, in_log=self._in_log)
            add_entry(self._builder, self._lines[first:after], self._settings)
        self._builder.end_paragraph()
        return after

    @cached_property
    def _in_log(self) -> bool:
        return is_mostly_log(self._source, self._lines)

    def _item(self, at: int) -> int:
        after = at
        while after < len(self._lines) and LIST_ITEM.match(self._source, *self._lines[after]):
            first = after
            after += 1
            while after < len(self._lines) and self._goes_on(after):
                after += 1
            start, end = self._lines[first].start, self._lines[after - 1].end
            add_sentences(self._builder, start, end, self._settings, "list_item", whole=True)
        if after > at:
            self._builder.end_paragraph()
        return after

    def _goes_on(self, at: int) -> bool:
        line = self._lines[at]
        return _SPACE_FIRST.match(self._source, *line) is not None and not LIST_ITEM.match(
            self._source, *line
        )

    def _turn(self, at: int) -> int:
        after = at + 1
        while (
            after < len(self._lines)
            and self._is_plain(after)
            and not SPEAKER.match(self._source, *self._lines[after])
        ):
            after += 1
        add_turn(self._builder, self._lines[at:after], self._settings)
        return after

    def _indented(self, at: int) -> int:
        if at and not is_blank(self._source, self._lines[at - 1]):
            return 0
        after = indented_until(self._source, self._lines, at)
        if after == at:
            return 0
        add_code(self._builder, self._lines[at:after], self._settings)
        self._builder.end_paragraph()
        return after

    def _prose(self, at: int) -> int:
        after = at + 1
        while after < len(self._lines) and self._is_plain(after):
            after += 1
        add_paragraph(self._builder, self._lines[at:after], self._settings)
        return after

    def _is_plain(self, at: int) -> bool:
        """True where line `at` begins no block of its own."""
        line = self._lines[at]
        if is_blank(self._source, line) or at + self._offset in self._fences:
            return False
        if any(pattern.match(self._source, *line) for pattern in (HEADING, LIST_ITEM, LOG_LINE, OUTPUT_LINE)):
            return False
        if self._is_dialogue and SPEAKER.match(self._source, *line):
            return False
        if self._source[line.start : line.end].lstrip()[:1] in ("{", "["):
            return False
        if begins_report(self._source, self._lines, at) and not self._is_dialogue:
            return False
        if self._source.startswith(PRINTED_HEADS, line.start) or begins_table(self._source, self._lines, at):
            return False
        return markdown_until(self._source, self._lines, at) == at


def _is_dialogue(source: str, lines: Sequence[Line]) -> bool:
    """Several lines begin with a name and a colon, and some name comes back or nearly every line has one."""
    names: Counter[str] = Counter()
    filled = 0
    for line in lines:
        if line.end > line.start and not is_blank(source, line):
            filled += 1
            found = SPEAKER.match(source, *line)
            if found:
                names[found.group().strip()] += 1
    labelled = sum(names.values())
    if labelled >= 2 and _is_printed(source, lines):
        return False
    return labelled >= 2 and (max(names.values()) >= 2 or labelled * 2 >= filled) and labelled * 5 >= filled


def _is_printed(source: str, lines: Sequence[Line]) -> bool:
    """A part of the lines are what builds and tests print: `error:` is no speaker there."""
    printed = sum(OUTPUT_LINE.match(source, *line) is not None for line in lines)
    return printed >= 3 and printed * _PRINTED_SHARE >= len(lines)


def add_blocks(reading: Reading, lines: Sequence[Line], offset: int, *, tag: bool) -> tuple[int, int] | None:
    """Add all units of a document's body. With `tag`, its closing tag is left out and its span returned."""
    closing = None
    source = reading.builder.source
    if tag:
        last = len(lines) - 1
        while last >= 0 and is_blank(source, lines[last]):
            last -= 1
        if last >= 0 and _CLOSING_TAG.match(source, *lines[last]):
            closing = (lines[last].start, lines[last].end)
            lines = lines[:last]
    Blocks(reading, lines, offset).add()
    return closing
