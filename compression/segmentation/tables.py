"""Tables in Markdown, CSV and TSV, drawn with characters or set in columns: rows inside the frame of their header."""

import re
from collections.abc import Sequence

from compression.segmentation.lines import Line, is_blank
from compression.segmentation.prose import split_long
from compression.source.units import Builder, SegmentationSettings

_RULE = r"[ \t]*+:?-++:?[ \t]*+"
_DELIMITER_ROW = re.compile(rf"[ \t]*+\|?{_RULE}(?:\|{_RULE})*+(?:\|[ \t]*+)?\Z")
_QUOTED = re.compile(r'"[^"\n]*"')
_LONGEST_ROW = 2000


def markdown_until(source: str, lines: Sequence[Line], number: int) -> int:
    """The line after the Markdown table whose header is line `number`; `number` itself where none begins."""
    if number + 1 >= len(lines) or source.find("|", *lines[number]) < 0:
        return number
    if source.find("|", *lines[number + 1]) < 0 or not _DELIMITER_ROW.match(source, *lines[number + 1]):
        return number
    at = number + 2
    while at < len(lines) and source.find("|", *lines[at]) >= 0:
        at += 1
    return at


def separated_until(source: str, lines: Sequence[Line], number: int) -> int:
    """The line after a run of at least three rows with the same number of tabs, commas, semicolons or bars."""
    for mark in "\t,;|":
        columns = _columns(source, lines[number], mark)
        if columns < (2 if mark != "\t" else 1):
            continue
        # Told by its first rows: to read a long run only to refuse it could be done again from each of its lines.
        first = lines[number : number + 3]
        if len(first) < 3 or any(_columns(source, line, mark) != columns for line in first[1:]):
            continue
        if not _reads_as_prose(source, first, mark):
            at = number + 3
            while at < len(lines) and _columns(source, lines[at], mark) == columns:
                at += 1
            return at
    return number


def _columns(source: str, line: Line, mark: str) -> int:
    if line.end - line.start > _LONGEST_ROW or source.find(mark, *line) < 0:
        return 0
    text = source[line.start : line.end]
    return (_QUOTED.sub("", text) if '"' in text else text).count(mark)


def _reads_as_prose(source: str, lines: Sequence[Line], mark: str) -> bool:
    """In prose a comma is followed by a space, and there are many words to each."""
    if mark in "\t|":
        return False
    text = source[lines[0].start : lines[-1].end]
    marks = text.count(mark)
    return text.count(mark + " ") * 2 > marks and text.count(" ") > 4 * marks


def add_table(builder: Builder, lines: Sequence[Line], header: int, settings: SegmentationSettings) -> None:
    """`header` lines name the columns (two in Markdown, with the rule under them), and those after them that do so
    too, as years do; the rest are rows. A row that names those under it is their frame."""
    source = builder.source
    mark = mark_of(source[lines[0].start : lines[header - 1].end])
    header += _more_header(source, lines[header:], mark)
    opening = builder.add(lines[0].start, lines[header - 1].end, "table_header")
    if opening >= 0:
        builder.open_frame("table", opening)
    sections = _sections(source, lines[header:], mark) if opening >= 0 else frozenset()
    in_section = False
    for number, line in enumerate(lines[header:]):
        if number in sections:
            if in_section:
                builder.close_frame()
            builder.open_frame("table", builder.add(*line, "table_header"))
            in_section = True
            continue
        for start, end in split_long(source, *line, longest=4 * settings.longest_unit):
            builder.add(start, end, "table_row")
    if in_section:
        builder.close_frame()
    if opening >= 0:
        builder.close_frame()
    builder.end_paragraph()


_BARS = "|│║┃"
_QUOTED_OR_BARE = {mark: re.compile(rf'"(?:[^"]|"")*+"[^{mark}]*+|[^{mark}]*+') for mark in ",;"}
_GAP = re.compile(r"[ \t]{2,}")


def mark_of(header: str) -> str | None:
    """What stands between the cells of a table, by its header; None where columns are told by where they stand."""
    return next((mark for mark in (*_BARS, "\t", ";", ",") if mark in header), None)


def cells(row: str, mark: str | None) -> list[str]:
    """The cells of a row, without the marks around them."""
    if mark is None:
        return _GAP.split(row.strip())
    if mark in _BARS:
        row = row.strip()
        return [
            cell.strip() for cell in row[row.startswith(mark) : len(row) - row.endswith(mark)].split(mark)
        ]
    if '"' not in row:
        return [cell.strip() for cell in row.split(mark)]
    quoted = _QUOTED_OR_BARE.get(mark)
    found, at = [], 0
    while quoted is not None and at <= len(row):
        cell = quoted.match(row, at)
        assert cell is not None
        found.append(cell.group().strip().strip('"'))
        at = cell.end() + 1
    return found or row.split(mark)


_QUANTITY = re.compile(r"[$€£¥₹()+\-−–—\s]*+\d[\d,.\s\u00a0'’]*+[%)\s]*+\Z")  # noqa: RUF001
YEAR = re.compile(r"(?<!\d)(?:1[5-9]|20)\d\d(?!\d)")
_UNIT = re.compile(r"[\W_]*+\Z|\(.{1,40}\)\Z")
_MOST_HEADERS = 3
_TOLD_BY = 8


def _more_header(source: str, lines: Sequence[Line], mark: str | None) -> int:
    """How many of the first rows still name columns: over quantities there stand years, units or words."""
    if mark is None:
        return 0
    rows = [cells(source[line.start : line.end], mark) for line in lines[: _MOST_HEADERS + _TOLD_BY]]
    count = 0
    while count < min(_MOST_HEADERS, len(rows) - 2) and _names_columns(rows[count]):
        count += 1
    body = [row for row in rows[count:] if any(row[1:])]
    has_quantities = sum(any(map(_is_quantity, row[1:])) for row in body) * 2 > len(body)
    return count if has_quantities else 0


def _is_quantity(cell: str) -> bool:
    return _QUANTITY.match(cell) is not None and not (len(cell) == 4 and YEAR.match(cell))


def _names_columns(row: list[str]) -> bool:
    named = [cell for cell in row[1:] if cell]
    if not named or any(map(_is_quantity, named)):
        return False
    return not row[0] or any(YEAR.search(cell) or _UNIT.match(cell) for cell in named)


_SECTIONS = {
    mark: re.compile(
        rf'[ \t]*+{re.escape(mark) + "?" if mark in _BARS else ""}(?:"[^"\n]*+"|[^{mark}\n"]*+)'
        rf"(?:{re.escape(mark)}[ \t]*+){{{1 + (mark in _BARS)},}}\Z"
    )
    for mark in (*_BARS, "\t", ";", ",")
}


def _sections(source: str, lines: Sequence[Line], mark: str | None) -> frozenset[int]:
    """Rows with a name alone that have rows under them; none where they are so many that they are rows themselves."""
    if mark is None:
        return frozenset()
    named = [
        number
        for number, line in enumerate(lines[:-1])
        if _SECTIONS[mark].match(source, *line) and any(map(str.isalpha, source[line.start : line.end][:80]))
    ]
    return frozenset(named if len(named) * 3 <= len(lines) else ())


_DRAWN_RULE = re.compile(
    r"[ \t]*+(?:[+|]?[-=]{2,}+(?:\+[-=]{2,}+)++[+|]?|\+[-=]{3,}+\+|[┌├└╔╠╭╰┏┡┣][─═━┬┼┴╦╬┳╇┻┐┤┘╗╣╮╯┓┩]{2,}+)[ \t]*+\Z"
)
_BAR = re.compile(r"[|│║┃]")
_TOKEN = re.compile(r"\S++")
_WIDEST = 400
_FEWEST = 3
_TELLING = 6


def drawn_until(source: str, lines: Sequence[Line], number: int) -> tuple[int, int]:
    """The line after a table drawn with rules, and how many lines its header has; (number, 0) where none begins."""
    at = number
    if _is_rule(source, lines[at]):
        at += 1
    head = at
    while (
        at < len(lines)
        and at - head < 4
        and _BAR.search(source, *lines[at])
        and not _is_rule(source, lines[at])
    ):
        at += 1
    if at == head or at >= len(lines) or not _is_rule(source, lines[at]):
        return number, 0
    header = at + 1 - number
    while at < len(lines) and (_is_rule(source, lines[at]) or _BAR.search(source, *lines[at])):
        at += 1
    return at, header


def begins_table(source: str, lines: Sequence[Line], number: int) -> bool:
    """Asked of every line of prose: what no table can begin with costs next to nothing."""
    # Only as far as it takes to tell: a long table would else be read again from each of its lines.
    near = lines[number : number + _TELLING]
    if source.count("  ", *lines[number]) >= 2 and aligned_until(source, near, 0) > 0:
        return True
    return source.find("|", *lines[number]) >= 0 and drawn_until(source, near, 0)[0] > 0


def _is_rule(source: str, line: Line) -> bool:
    return line.end - line.start <= _WIDEST * 5 and _DRAWN_RULE.match(source, *line) is not None


def aligned_until(source: str, lines: Sequence[Line], number: int) -> int:
    """The line after a run of rows aligned with the words of line `number`; `number` itself where there is none."""
    edges = _edges(source, lines[number])
    if edges is None or number + 2 >= len(lines):
        return number
    needed = max(2, (len(edges[0]) + 1) // 2)
    at = number + 1
    while at < len(lines) and _stands_under(source, lines[at], edges, needed):
        at += 1
    return at if at - number >= _FEWEST else number


def _edges(source: str, line: Line) -> tuple[set[int], set[int]] | None:
    """Where the columns of a header begin and end, counted from the line's start; None where it has too few."""
    if (
        line.end - line.start > _WIDEST
        or source.count("  ", *line) < 2
        or source[line.start : line.end][-1:] in ".:;,"
    ):
        return None
    found = list(_TOKEN.finditer(source, *line))
    if len(found) < _FEWEST:
        return None
    return {word.start() - line.start for word in found}, {word.end() - line.start for word in found}


def _stands_under(source: str, line: Line, edges: tuple[set[int], set[int]], needed: int) -> bool:
    if is_blank(source, line) or line.end - line.start > 3 * _WIDEST:
        return False
    starts, ends = edges
    found = list(_TOKEN.finditer(source, *line))
    hits = sum(word.start() - line.start in starts or word.end() - line.start in ends for word in found)
    return len(found) >= 2 and hits >= needed
