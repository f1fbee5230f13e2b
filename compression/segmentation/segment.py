"""Segmentation of a source: every stretch goes to the module for its kind, and too many units are joined."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from compression.conversation.writing import segment_conversation
from compression.segmentation.blocks import Reading, add_blocks
from compression.segmentation.code import fenced_lines
from compression.segmentation.code_regions import with_code
from compression.segmentation.documents import Part, names_documents, split_documents
from compression.segmentation.entries import Entry, is_turn, split_entries
from compression.segmentation.json_units import JsonFinder, add_json_source
from compression.segmentation.lines import Line, is_blank, split_lines, trimmed
from compression.segmentation.pages import find_pages, segment_page
from compression.segmentation.printed import printed_view
from compression.segmentation.xml_units import add_xml_source
from compression.source.edits import with_markup, without
from compression.source.units import (
    Builder,
    Document,
    Frame,
    Segmentation,
    SegmentationSettings,
    Slice,
    Unit,
    UnitKind,
    last_units,
)


def coarsened(text: Segmentation, most: int) -> Segmentation:
    """`text` itself where it has at most `most` units; else one of at most so many, whose units are joined."""
    width = max(2, 2 * len(text.source) // most)
    while len(text.units) > most:
        text = _Coarser(text, width).build()
        width *= 2
    return text


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a unit is after joining: its frame, its document, and the outermost frame around it that was dissolved."""

    frame: int | None
    document: int
    whole: int | None


class _Coarser:
    """One pass: joins up to `width` characters, and dissolves frames and documents that are no longer than that."""

    def __init__(self, text: Segmentation, width: int) -> None:
        self._text = text
        self._width = width
        self._last = last_units(text)
        self._stays = [self._is_long_frame(number) for number in range(len(text.frames))]
        self._around = _around(text.frames, self._stays)
        self._end_of = _frames_by_end(text.frames)
        self._documents = self._joined_documents()
        self._places = [self._place(at) for at in range(len(text.units))]
        self._titles = self._kept_titles()
        self._fixed = set(self._titles.values()).union(
            end for end, number in self._end_of.items() if self._stays[number]
        )

    def build(self) -> Segmentation:
        runs = list(self._runs())
        of_unit: list[int] = []
        for number, (first, last) in enumerate(runs):
            of_unit += [number] * (last - first)
        numbers = list(accumulate(self._stays, initial=0))
        return replace(
            self._text,
            units=tuple(self._units(runs, numbers)),
            documents=tuple(self._built_documents(of_unit)),
            frames=tuple(self._frames(numbers, of_unit)),
        )

    def _is_long_frame(self, number: int) -> bool:
        units = self._text.units
        first, last = self._text.frames[number].open, self._last[number]
        return units[last].end - units[first].start > self._width

    def _is_short(self, document: Document) -> bool:
        return document.end - document.start <= self._width

    def _joined_documents(self) -> list[int]:
        """The new number of each document: short neighbours are one."""
        numbers: list[int] = []
        start, after_short = 0, False
        for document in self._text.documents:
            is_short = self._is_short(document)
            if not (is_short and after_short and document.end - start <= self._width):
                start = document.start
                numbers.append(numbers[-1] + 1 if numbers else 0)
            else:
                numbers.append(numbers[-1])
            after_short = is_short
        return numbers

    def _place(self, at: int) -> _Place:
        unit = self._text.units[at]
        number = self._end_of.get(at, unit.frame)
        if number is not None and at in self._end_of and self._stays[number]:
            # The ends of a frame belong to the frame around it.
            number = unit.frame
        frame, whole = (None, None) if number is None else self._around[number]
        return _Place(frame, self._documents[unit.document], whole)

    def _kept_titles(self) -> dict[int, int]:
        """By the number of its document, the unit that still names it."""
        return {
            number: document.title
            for number, document in enumerate(self._text.documents)
            if document.title is not None
            and not self._is_short(document)
            and self._places[document.title].whole is None
        }

    def _runs(self) -> Iterator[tuple[int, int]]:
        """Half-open ranges of units that become one."""
        first, units = 0, self._text.units
        for at in range(1, len(units)):
            if not self._joins(first, at):
                yield first, at
                first = at
        yield first, len(units)

    def _joins(self, first: int, at: int) -> bool:
        if at in self._fixed or at - 1 in self._fixed:
            return False
        before, here = self._places[at - 1], self._places[at]
        if here.document != before.document:
            # Of a frame with several documents in it, too.
            return False
        if here.whole is not None and here.whole == before.whole:
            return True
        end = self._text.units[at if here.whole is None else self._last[here.whole]].end
        return here.frame == before.frame and end - self._text.units[first].start <= self._width

    def _units(self, runs: Sequence[tuple[int, int]], numbers: Sequence[int]) -> Iterator[Unit]:
        units = self._text.units
        paragraph = 0
        for first, last in runs:
            # What was one paragraph may be in several units; each unit is in the paragraph that it begins in.
            if first and units[first].paragraph != units[first - 1].paragraph:
                paragraph += 1
            place = self._places[first]
            frame = None if place.frame is None else numbers[place.frame]
            kind = self._kind(first, last)
            yield Unit(units[first].start, units[last - 1].end, kind, place.document, paragraph, frame=frame)

    def _kind(self, first: int, last: int) -> UnitKind:
        kinds = {unit.kind for unit in self._text.units[first:last]}
        if len(kinds) == 1:
            return kinds.pop()
        return "json_member" if kinds & {"json_member", "bracket"} else "line"

    def _frames(self, numbers: Sequence[int], of_unit: Sequence[int]) -> Iterator[Frame]:
        for frame, stays in zip(self._text.frames, self._stays, strict=True):
            if stays:
                close = None if frame.close is None else of_unit[frame.close]
                parent = None if frame.parent is None else numbers[frame.parent]
                yield Frame(frame.kind, of_unit[frame.open], close, parent)

    def _built_documents(self, of_unit: Sequence[int]) -> list[Document]:
        found: list[Document] = []
        for old, (number, document) in enumerate(zip(self._documents, self._text.documents, strict=True)):
            last = of_unit[document.units[1] - 1] + 1
            if number < len(found):
                first = found[number]
                found[number] = Document(first.start, document.end, (first.units[0], last), None)
            else:
                title = of_unit[self._titles[old]] if old in self._titles else None
                units = (of_unit[document.units[0]], last)
                found.append(Document(document.start, document.end, units, title))
        return found


def _frames_by_end(frames: Sequence[Frame]) -> dict[int, int]:
    ends = {frame.open: number for number, frame in enumerate(frames)}
    ends.update({frame.close: number for number, frame in enumerate(frames) if frame.close is not None})
    return ends


def _around(frames: Sequence[Frame], stays: Sequence[bool]) -> list[tuple[int | None, int | None]]:
    """For the units of each frame: the innermost frame around them that stays, and the outermost one that does not."""
    found: list[tuple[int | None, int | None]] = []
    for number, frame in enumerate(frames):
        outer = (None, None) if frame.parent is None else found[frame.parent]
        if stays[number]:
            found.append((number, None))
        else:
            found.append((outer[0], number if outer[1] is None else outer[1]))
    return found


_DEFAULT = SegmentationSettings()


def segment(source: str, settings: SegmentationSettings = _DEFAULT) -> Segmentation:
    """Units, paragraphs and documents of `source`; the work grows with its length and with nothing else."""

    def segment_text(text: str, most_units: int) -> Segmentation:
        return segment_plain(text, replace(settings, most_units=most_units))

    found = (
        segment_conversation(source, settings.most_units, segment_text) if settings.conversations else None
    )
    if found is not None:
        return found
    printed = printed_view(source)
    if printed is None:
        return segment_plain(source, settings)
    view, origin = printed
    text = segment_plain(view, settings)
    return replace(text, origin=replace(text.origin, outer=origin) if text.origin else origin)


def segment_plain(source: str, settings: SegmentationSettings = _DEFAULT) -> Segmentation:
    """The same, of a source that is taken for no conversation: without pages in it its offsets are the source's own."""
    builder = Builder(source)
    if not add_json_source(builder, settings):
        pages = find_pages(source)
        if not pages and add_xml_source(builder, settings):
            return coarsened(builder.build(), settings.most_units)
        if len(pages) == 1 and not source[: pages[0].start].strip() and not source[pages[0].end :].strip():
            return coarsened(segment_page(source, settings), settings.most_units)
        _add_stretches(builder, pages, settings)
    return without(coarsened(builder.build(), settings.most_units))


def _add_stretches(builder: Builder, pages: Sequence[Slice], settings: SegmentationSettings) -> None:
    """Pages by their markup, and what is around them by its lines."""
    source, at = builder.source, 0
    lines = split_lines(source, most=settings.most_lines)
    for start, end in pages:
        _add_lines(builder, settings, _within(lines, at, start))
        builder.end_document(start)
        builder.graft(with_markup(segment_page(source[start:end], settings)), start)
        builder.end_document(end)
        at = end
    _add_lines(builder, settings, lines if not at else _within(lines, at, len(source)))


def _within(lines: Sequence[Line], start: int, end: int) -> list[Line]:
    """The lines between two places, those that reach over one cut there; none where there is only white space."""
    first = bisect_right(lines, start, key=lambda line: line.end)
    last = bisect_left(lines, end, lo=first, key=lambda line: line.start)
    return [Line(max(start, line.start), min(end, line.end)) for line in lines[first:last]]


def _add_lines(builder: Builder, settings: SegmentationSettings, lines: list[Line]) -> None:
    source = builder.source
    if all(is_blank(source, line) for line in lines) and not source.isspace():
        return
    fences = with_code(source, lines, fenced_lines(source, lines))
    free = [True] * len(lines)
    for first, last in fences.items():
        free[first : last + 1] = [False] * (last + 1 - first)
    reading = Reading(builder, fences, JsonFinder(source), settings)
    _add_text(reading, lines, free)


def _add_text(reading: Reading, lines: list[Line], free: Sequence[bool]) -> None:
    """Entries where the text has any, and documents; what is marked as a document at the beginning is no entry."""
    source = reading.builder.source
    entries, bare = split_entries(source, lines, free)
    first = entries[0].first if entries else len(lines)
    named = not entries or names_documents(source, lines[: first + 1], free)
    # A title may end in a colon, but then there are more titles than such.
    parts = split_documents(source, lines, free) if named or entries[0].kind == "role" else []
    if named or len(parts) >= len(entries):
        for part in parts:
            _add_document(reading, lines, part, 0)
        return
    if any(not is_blank(source, line) for line in lines[:first]):
        for part in split_documents(source, lines[:first], free):
            _add_document(reading, lines[:first], part, 0)
    for entry in entries:
        _add_entry(reading, bare, free, entry)


def _add_entry(reading: Reading, lines: Sequence[Line], free: Sequence[bool], entry: Entry) -> None:
    """The head, and under it the documents of the body: more than one where it lists what was found."""
    builder, source = reading.builder, reading.builder.source
    body = trimmed(lines[entry.first : entry.last], entry.body)
    if entry.closing is not None:
        body = [Line(*(min(at, entry.closing[0]) for at in line)) for line in body]
    if entry.closing is None and is_turn(source, body, reading.settings):
        builder.add(entry.head[0], body[-1].end, "turn")
    else:
        builder.open_frame("turn", builder.add(*entry.head, "speaker"))
        builder.end_paragraph()
        parts = split_documents(source, body, free[entry.first : entry.last])
        for part in parts:
            _add_document(reading, body, part, entry.first, is_last=part is parts[-1])
        builder.close_frame(*entry.closing) if entry.closing else builder.close_frame()
    builder.end_document(lines[entry.last - 1].end)


def _add_document(
    reading: Reading, lines: list[Line], part: Part, offset: int, *, is_last: bool = False
) -> None:
    """`offset` is the number of the first of `lines` in the source. With `is_last`, the document is left open."""
    builder = reading.builder
    if part.opening is not None:
        builder.open_frame("tag", builder.add(*part.opening, "bracket"))
    if part.heading is not None:
        builder.set_title(builder.add(*part.heading, "heading"))
        builder.end_paragraph()
    own = lines[part.first : part.last]
    body = trimmed(own, part.body)
    closing = add_blocks(reading, body, offset + part.first, tag=part.opening is not None)
    if part.opening is not None:
        builder.close_frame(*closing) if closing else builder.close_frame()
    if not is_last:
        builder.end_document(own[-1].end)
