"""Code of any language cut at its definitions: blocks by indentation, whose heads frame what does not fit with them.

No parser: fragments, diffs, numbered listings and languages that nobody thought of are cut as well as whole files are.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from compression.segmentation.lines import Line
from compression.segmentation.prose import split_long
from compression.source.units import Builder, Segmentation, SegmentationSettings, last_units

# `12\tcode`, `12→code`, `12: code`, `12 | code`
LINE_NUMBER = re.compile(r"[ \t]{0,8}(\d{1,7})(?:\t|→|: ?|[ \t]?[|│] ?)")
_FEWEST_NUMBERED = 3
_TAB = 4
# What belongs to the block before it though it is indented no further: closing brackets, a brace alone, branches.
_GOES_ON = re.compile(
    r"[)\]}>]|\{[ \t]*\Z|(?:end|else|elif|elsif|elseif|except|finally|catch|rescue|ensure|then|do|begin)\b|where\b"
)
# What belongs to the block after it: decorators, attributes, comments.
_LEADS = re.compile(
    r"@\w|#(?!include|if|end|define)|//|/\*|\*|--(?!-)|%|;|\[\w[^\]\n]{0,200}\][ \t]*\Z|'''|\"\"\"|template ?<"
)
_CLOSES = re.compile(r"(?:[)\]}]|end\b)[^\n]{0,40}\Z")
_QUOTES = re.compile(r"\"\"\"|'''|/\*|\*/")
_DEEPEST = 12
_MOST_SIGNATURE = 40
_CONTAINER = re.compile(
    r"(?:[\w@]+(?:\([^()\n]{0,80}\))?[ \t]+){0,6}"
    r"(?:class|interface|trait|impl|module|namespace|struct|enum|object|extension|protocol|union|mod|extern|describe)\b"
)
# A function is kept whole up to this share of the source, between the longest block and `_LONGEST_WHOLE`.
_WHOLE_SHARE = 40
_LONGEST_WHOLE = 2_400


class _Block(NamedTuple):
    """Lines `[first, last)`: what leads to it, a head that ends before `body`, and what is indented under it."""

    first: int
    head: int
    body: int
    last: int


class _Layout:
    """The lines of some code: where the code of each begins, and how deep it is indented, -1 for a blank line."""

    def __init__(self, source: str, lines: Sequence[Line]) -> None:
        self.source = source
        self.lines = lines
        self.starts = code_starts(source, lines)
        self.depths = [
            _depth(source, start, line.end) for start, line in zip(self.starts, lines, strict=True)
        ]
        self._sink_strings()

    def text(self, number: int) -> str:
        return self.source[self.starts[number] : self.lines[number].end].strip()

    def _sink_strings(self) -> None:
        """What is inside of a string or comment of several lines is deeper than where that begins."""
        opened: str | None = None
        first, depth = 0, 0
        before: list[tuple[int, int]] = []
        for number, line in enumerate(self.lines):
            if opened is not None and self.depths[number] >= 0:
                before.append((number, self.depths[number]))
                self.depths[number] = max(self.depths[number], depth + 1)
            for found in _QUOTES.finditer(self.source, self.starts[number], line.end):
                mark = found.group()
                if opened is None and mark != "*/":
                    opened, first, depth = (
                        ("*/" if mark == "/*" else mark),
                        number,
                        max(0, self.depths[number]),
                    )
                    before = []
                elif mark == opened:
                    opened = None
        if opened is not None and len(self.lines) - first > 1:
            # Nothing ends it: it was no string.
            for number, own in before:
                self.depths[number] = own


def code_starts(source: str, lines: Sequence[Line]) -> list[int]:
    """Where the code of each line begins: after its number, in a listing with line numbers."""
    found = [LINE_NUMBER.match(source, *line) for line in lines]
    numbers = [None if each is None else int(each.group(1)) for each in found]
    filled = sum(line.end > line.start for line in lines)
    follows = sum(
        after is not None and before is not None and after == before + 1
        for before, after in pairwise(numbers)
    )
    if follows + 1 < _FEWEST_NUMBERED or (follows + 1) * 5 < filled * 4:
        return [line.start for line in lines]
    return [line.start if each is None else each.end() for each, line in zip(found, lines, strict=True)]


def _depth(source: str, start: int, end: int) -> int:
    at = depth = 0
    for at in range(start, end):
        if source[at] == " ":
            depth += 1
        elif source[at] == "\t":
            depth += _TAB
        else:
            return depth
    return -1


def add_code(builder: Builder, lines: Sequence[Line], settings: SegmentationSettings) -> None:
    """Code without its fences: whole functions where they are small, else their parts under their heads."""
    _Cutter(builder, lines, settings).add(0, len(lines), 0)
    builder.end_paragraph()


class _Cutter:
    def __init__(self, builder: Builder, lines: Sequence[Line], settings: SegmentationSettings) -> None:
        self._builder = builder
        self._code = _Layout(builder.source, lines)
        self._longest = settings.longest_block
        self._whole = max(self._longest, min(_LONGEST_WHOLE, len(builder.source) // _WHOLE_SHARE))

    def add(self, first: int, last: int, level: int) -> None:
        """Add lines `[first, last)`. Statements are joined up to the longest block, a blank line parts them."""
        waiting = first
        for block in self._blocks(first, last):
            is_part = self._size(block.first, block.last) <= (
                self._longest if level > 1 else self._longest // 2
            )
            is_definition = block.body < block.last and level < 2
            if is_definition or not is_part or self._breaks(waiting, block):
                self._unit(waiting, block.first)
                waiting = block.first
            if is_definition or not is_part:
                self._block(block, level)
                waiting = block.last
        self._unit(waiting, last)

    def _breaks(self, waiting: int, block: _Block) -> bool:
        """Whether what waits is added by itself, and the block begins another unit."""
        if waiting == block.first:
            return False
        after_blank = self._code.depths[block.first - 1] < 0
        limit = self._longest // 2 if after_blank else self._longest
        return self._size(waiting, block.last if not after_blank else block.first) > limit

    def _size(self, first: int, last: int) -> int:
        return self._code.lines[last - 1].end - self._code.lines[first].start if last > first else 0

    def _unit(self, first: int, last: int) -> int:
        if last <= first:
            return -1
        lines = self._code.lines
        return self._builder.add_exactly(lines[first].start, lines[last - 1].end, "code_block")

    def _block(self, block: _Block, level: int) -> None:
        is_outer = level < 2
        if is_outer:
            self._builder.end_paragraph()
        if self._size(block.first, block.last) <= self._whole:
            self._unit(block.first, block.last)
        elif block.body >= block.last or level >= _DEEPEST:
            self._pieces(block.first, block.last)
        else:
            self._framed(block, level)
        if is_outer:
            self._builder.end_paragraph()

    def _framed(self, block: _Block, level: int) -> None:
        """The head as a frame, what leads to it in it where it is short; the body in parts; the closing line."""
        first = block.first
        if self._size(block.first, block.body) > self._longest and block.head > block.first:
            self._pieces(block.first, block.head)
            first = block.head
        unit = self._unit(first, block.body)
        code = self._code
        last = block.last
        while last > block.body and code.depths[last - 1] < 0:
            last -= 1
        closing = last - 1 if last - 1 > block.body and _CLOSES.match(code.text(last - 1)) else None
        is_container = _CONTAINER.match(code.text(block.head)) is not None
        if unit >= 0:
            self._builder.open_frame("block", unit)
        self.add(block.body, last if closing is None else closing, level if is_container else level + 2)
        if unit >= 0:
            ends = () if closing is None else code.lines[closing]
            self._builder.close_frame(*ends, *(("code_block",) if ends else ()))

    def _pieces(self, first: int, last: int) -> None:
        """Lines that nothing structures, in parts of at most the longest block."""
        begin = first
        for number in range(first + 1, last):
            if self._size(begin, number + 1) > self._longest:
                self._long(begin, number)
                begin = number
        self._long(begin, last)

    def _long(self, first: int, last: int) -> None:
        lines = self._code.lines
        for start, end in split_long(
            self._builder.source, lines[first].start, lines[last - 1].end, longest=4 * self._longest
        ):
            self._builder.add_exactly(start, end, "code_block")

    def _blocks(self, first: int, last: int) -> Iterator[_Block]:
        """The blocks of lines `[first, last)` that are indented least."""
        depths = self._code.depths
        base = min((depth for depth in depths[first:last] if depth >= 0), default=0)
        start, leads = first, True
        for number in range(first, last):
            if depths[number] != base:
                # A blank line after a comment parts it from what comes.
                leads = leads and depths[number] > base
                continue
            text = self._code.text(number)
            if number > start and not leads and _GOES_ON.match(text) is None:
                yield self._read(start, number, base)
                start = number
            leads = _LEADS.match(text) is not None
        if start < last:
            yield self._read(start, last, base)

    def _read(self, first: int, last: int, base: int) -> _Block:
        depths = self._code.depths
        head = first
        for number in range(first, last):
            if depths[number] == base and _LEADS.match(self._code.text(number)) is None:
                head = number
                break
        body = self._body(head, last, base)
        return _Block(first, head, body, last)

    def _body(self, head: int, last: int, base: int) -> int:
        """The line after the head: a signature over several lines goes on until its brackets are closed."""
        depths, balance, at = self._code.depths, 0, head
        while at < min(last, head + _MOST_SIGNATURE):
            text = self._code.text(at)
            balance += text.count("(") + text.count("[") - text.count(")") - text.count("]")
            at += 1
            if balance <= 0:
                break
        if at >= last or balance > 0:
            at = head + 1
        if at < last and self._code.text(at) == "{":
            at += 1
        has_body = any(depth > base for depth in depths[at:last])
        return at if has_body else last


def framed_functions(text: Segmentation) -> dict[int, int]:
    """Functions in more than one unit, the outermost: by the unit of the head, the last of its units."""
    last = last_units(text)
    found: dict[int, int] = {}
    reached = -1
    for number, frame in enumerate(text.frames):
        is_code = frame.kind == "block" and text.units[frame.open].kind == "code_block"
        if is_code and frame.open > reached and not _holds_functions(text.text(frame.open)):
            reached = found[frame.open] = last[number]
    return found


def _holds_functions(head: str) -> bool:
    return any(_CONTAINER.match(line.strip()) for line in head.split("\n"))
