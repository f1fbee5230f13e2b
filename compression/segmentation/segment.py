"""Reads a source from its first line to its last and gives every stretch to the part that knows its kind."""

from __future__ import annotations

from dataclasses import replace

from compression.conversation.writing import segment_conversation
from compression.segmentation.blocks import Reading, add_blocks
from compression.segmentation.builder import Builder
from compression.segmentation.coarsening import coarsened
from compression.segmentation.code import fenced_lines
from compression.segmentation.documents import Part, split_documents
from compression.segmentation.json_units import JsonFinder, add_json_source
from compression.segmentation.lines import Line, split_lines
from compression.segmentation.settings import SegmentationSettings
from compression.units import Segmentation

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
    for part in split_documents(source, lines, free):
        _add_document(reading, lines, part)


def _add_document(reading: Reading, lines: list[Line], part: Part) -> None:
    builder = reading.builder
    if part.opening is not None:
        builder.open_frame("tag", builder.add(*part.opening, "bracket"))
    if part.heading is not None:
        builder.set_title(builder.add(*part.heading, "heading"))
        builder.end_paragraph()
    own = lines[part.first : part.last]
    body = [Line(max(line.start, part.body), line.end) for line in own]
    body = [line if line.start <= line.end else Line(line.end, line.end) for line in body]
    closing = add_blocks(reading, body, part.first, tag=part.opening is not None)
    if part.opening is not None:
        builder.close_frame(*closing) if closing else builder.close_frame()
    builder.end_document(own[-1].end)
