"""Structure that a reader or a parser relies on: code, JSON and tables that were kept in part."""

import json
from collections.abc import Iterator

from compression.choosing.assembly import Slice, join, kept_parts
from compression.flags.evidence import Evidence
from compression.flags.flag import Flag
from compression.source.units import Frame


def damaged_structure(evidence: Evidence) -> Iterator[Flag]:
    checks = (
        ("code_altered", _altered_code),
        ("json_invalid", _invalid_json),
        ("table_damaged", _damaged_tables),
    )
    for code, find in checks:
        spans = list(find(evidence))
        if spans:
            yield evidence.flag(code, spans)


def _altered_code(evidence: Evidence) -> Iterator[tuple[int, int]]:
    """Code blocks of which a part was dropped: a reader cannot tell whether whole functions are missing."""
    units = evidence.text.units
    for paragraph in _runs_of_code(evidence):
        start, end = units[paragraph[0]].start, units[paragraph[-1]].end
        dropped = [unit for unit in paragraph if not evidence.is_whole(units[unit].start, units[unit].end)]
        if dropped and evidence.kept_length(start, end):
            yield start, end


def _runs_of_code(evidence: Evidence) -> Iterator[list[int]]:
    run: list[int] = []
    for index, unit in enumerate(evidence.text.units):
        if unit.kind not in ("code_block", "fence"):
            continue
        if run and evidence.text.units[run[-1]].paragraph != unit.paragraph:
            yield run
            run = []
        run.append(index)
    if run:
        yield run


def _invalid_json(evidence: Evidence) -> Iterator[tuple[int, int]]:
    """JSON values that parsed before and do not now. One that was dropped whole is gone, not broken, unless it was
    the whole source."""
    slices = [Slice(*piece) for piece in sorted(evidence.slices)]
    for frame in evidence.text.frames:
        if frame.kind != "json" or (
            frame.parent is not None and evidence.text.frames[frame.parent].kind == "json"
        ):
            continue
        start, end = _span(evidence, frame)
        # The JSON of a conversation is the input's; a text in it that is JSON is so when decoded.
        origin = evidence.text.origin
        is_decoded = origin is None or origin.is_in_text(start, end)
        if not is_decoded and frame.parent is not None:
            continue
        parts = kept_parts(slices, start, end)
        kept = join(evidence.source, parts) if is_decoded else evidence.text.raw(parts)
        if (kept or _is_whole_source(evidence, start, end)) and not _parses(kept):
            yield start, end


def _is_whole_source(evidence: Evidence, start: int, end: int) -> bool:
    """White space alone around it, as units tell: to look at the text itself would cost its length for each value."""
    units = evidence.text.units
    return start == units[0].start and end == units[-1].end


def _parses(text: str) -> bool:
    try:
        json.loads(text, parse_float=str, parse_int=str)
    except (json.JSONDecodeError, RecursionError):
        return False
    return True


def _damaged_tables(evidence: Evidence) -> Iterator[tuple[int, int]]:
    """Rows without the header that names their columns, and rows cut inside."""
    units = evidence.text.units
    headless = {
        number
        for number, frame in enumerate(evidence.text.frames)
        if frame.kind == "table" and not evidence.is_whole(units[frame.open].start, units[frame.open].end)
    }
    cut = set(evidence.cut_units)
    for index in evidence.kept_units:
        unit = units[index]
        if unit.kind == "table_row" and (unit.frame in headless or index in cut):
            yield unit.start, unit.end


def _span(evidence: Evidence, frame: Frame) -> tuple[int, int]:
    units = evidence.text.units
    return units[frame.open].start, units[frame.close if frame.close is not None else frame.open].end
