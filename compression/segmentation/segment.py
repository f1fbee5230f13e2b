"""Reads a source from its first line to its last and hands every stretch to the module for its kind."""

from collections.abc import Sequence
from dataclasses import replace

from compression.conversation.writing import segment_conversation
from compression.segmentation.blocks import Reading, add_blocks
from compression.segmentation.coarsening import coarsened
from compression.segmentation.cutting.builder import Builder
from compression.segmentation.cutting.lines import Line, is_blank, split_lines, trimmed
from compression.segmentation.cutting.settings import SegmentationSettings
from compression.segmentation.documents import Part, names_documents, split_documents
from compression.segmentation.entries import Entry, is_turn, split_entries
from compression.segmentation.json.units import JsonFinder, add_json_source
from compression.segmentation.kinds.code import fenced_lines
from compression.source.units import Segmentation

_DEFAULT = SegmentationSettings()


def segment(source: str, settings: SegmentationSettings = _DEFAULT) -> Segmentation:
    """Units, paragraphs and documents of `source`; the work grows with its length and with nothing else."""

    def segment_text(text: str, most_units: int) -> Segmentation:
        return segment_plain(text, replace(settings, most_units=most_units))

    found = (
        segment_conversation(source, settings.most_units, segment_text) if settings.conversations else None
    )
    return segment_plain(source, settings) if found is None else found


def segment_plain(source: str, settings: SegmentationSettings = _DEFAULT) -> Segmentation:
    """The same, of a source that is taken for no conversation: its offsets are the source's own."""
    builder = Builder(source)
    if not add_json_source(builder, settings):
        _add_lines(builder, settings)
    return coarsened(builder.build(), settings.most_units)


def _add_lines(builder: Builder, settings: SegmentationSettings) -> None:
    source = builder.source
    lines = split_lines(source, most=settings.most_lines)
    fences = fenced_lines(source, lines)
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
