"""Paragraphs of prose and turns of a conversation, cut into sentences."""

from collections.abc import Sequence
from itertools import pairwise

from compression.segmentation.cutting.builder import Builder
from compression.segmentation.cutting.lines import SPEAKER, Line, ends_sentence
from compression.segmentation.cutting.sentences import split_sentences
from compression.segmentation.cutting.settings import SegmentationSettings
from compression.source.units import UnitKind

# A line at least this long, as long as its neighbours and ending no sentence, was wrapped by an editor.
_WRAPPED_FROM = 40
_WRAPPED_TO = 160


def longest_for(source: str, start: int, end: int, settings: SegmentationSettings) -> int:
    """The bound for a unit here: a script without spaces says in 200 characters what others say in 600."""
    sample = source[start : min(end, start + 2000)]
    spaces = sum(map(sample.count, " \t\n"))
    return settings.longest_dense if len(sample) > 40 and spaces * 20 < len(sample) else settings.longest_unit


def add_sentences(
    builder: Builder,
    start: int,
    end: int,
    settings: SegmentationSettings,
    kind: UnitKind = "sentence",
    *,
    whole: bool = False,
) -> None:
    """One unit a sentence; with `whole`, one unit for all of it where it is short enough."""
    longest = longest_for(builder.source, start, end, settings)
    if whole and end - start <= min(longest, settings.longest_block):
        builder.add(start, end, kind)
        return
    for first, last in split_sentences(builder.source, start, end, longest=longest):
        builder.add(first, last, kind)


def add_paragraph(builder: Builder, lines: Sequence[Line], settings: SegmentationSettings) -> None:
    """Lines without a blank one between them. A wrapped line goes on in the next; any other ends a paragraph."""
    widest = max(line.end - line.start for line in lines)
    begin = lines[0].start
    for line, after in pairwise(lines):
        if not _is_wrapped(builder.source, line, widest):
            add_sentences(builder, begin, line.end, settings)
            if line.end - line.start > _WRAPPED_TO:
                builder.end_paragraph()
            begin = after.start
    add_sentences(builder, begin, lines[-1].end, settings)
    builder.end_paragraph()


def _is_wrapped(source: str, line: Line, widest: int) -> bool:
    length = line.end - line.start
    if widest > _WRAPPED_TO or length < _WRAPPED_FROM or length * 10 < widest * 6:
        return False
    return not ends_sentence(source[max(line.start, line.end - 12) : line.end])


def add_turn(builder: Builder, lines: Sequence[Line], settings: SegmentationSettings) -> None:
    """`Speaker: what was said`: one unit where it is short, else sentences inside a frame that names the speaker."""
    start, end = lines[0].start, lines[-1].end
    found = SPEAKER.match(builder.source, start, lines[0].end)
    longest = longest_for(builder.source, start, end, settings)
    if found is None or end - start <= min(longest, settings.longest_block):
        builder.add(start, end, "turn")
    else:
        builder.open_frame("turn", builder.add(start, found.end(), "speaker"))
        add_sentences(builder, found.end(), end, settings, "turn")
        builder.close_frame()
    builder.end_paragraph()
