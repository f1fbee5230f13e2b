"""JSON as units: members and elements that can go while what is left still parses."""

import re
from collections.abc import Iterable, Sequence

from compression.segmentation.cutting.builder import Builder
from compression.segmentation.cutting.lines import Line
from compression.segmentation.cutting.settings import SegmentationSettings
from compression.segmentation.json.identity import identifying
from compression.segmentation.json.strings import split_string
from compression.segmentation.kinds.prose import longest_for
from compression.text.json_tree import Node, json_end, read_tree

_TITLE_KEYS = frozenset({'"title"', '"name"', '"heading"', '"headline"', '"subject"'})
_OPENING = re.compile(r"[ \t\r\n]*[\[{]")
_LIKELY = re.compile(r'[ \t]*+(?=\{\s*+["}]|\[\s*+(?:["\[{\]0-9-]|true|false|null))')
_DEEPEST = 64
_MOST_FAILURES = 50
_READINGS = 4


class JsonFinder:
    """Finds JSON values that begin a line. Failures are few: one that is told apart late costs the text's length.

    So does a value that is valid but cannot be used, because its last line goes on: what is inside begins lines too,
    and would be read again from each. Hence no more than a few times the text's length is read.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._from = 0
        self._failures_left = _MOST_FAILURES
        self._left = _READINGS * len(source)

    def end(self, start: int, stop: int) -> int | None:
        """Where the JSON value that begins the line at `start` ends, None where none does before `stop`."""
        if start < self._from or not self._failures_left or self._left <= 0:
            return None
        opening = _LIKELY.match(self._source, start, stop)
        if opening is None:
            return None
        end, failed = json_end(self._source, opening.end())
        if end is None:
            self._failures_left -= 1
            # Looking again inside what has just been read could cost the square of its length.
            self._from = stop if failed is None else failed
        else:
            self._left -= end - opening.end()
        return end if end is not None and end <= stop else None


def add_json_source(builder: Builder, settings: SegmentationSettings) -> bool:
    """Add the whole source as JSON: false, and nothing added, where it is not one JSON object or array."""
    source = builder.source
    opening = _OPENING.match(source)
    if opening is None:
        return False
    start = opening.end() - 1
    end, _ = json_end(source, start)
    if end is None or source[end:].strip():
        return False
    add_json_value(builder, start, end, settings, documents=True)
    return True


def add_json_value(
    builder: Builder, start: int, end: int, settings: SegmentationSettings, *, documents: bool = False
) -> None:
    """With `documents`, the long records of an array are a document each."""
    Writer(builder, settings).add(read_tree(builder.source, start, end), documents=documents)


def add_fenced_json(
    builder: Builder, lines: Sequence[Line], finder: JsonFinder, settings: SegmentationSettings
) -> bool:
    """Add a fenced block that holds one long JSON value; false, and nothing added, for any other."""
    start, end = lines[0].end, lines[-1].start
    while start < end and builder.source[start].isspace():
        start += 1
    stop = finder.end(start, end) if end - start > settings.longest_block else None
    if stop is None or builder.source[stop:end].strip():
        return False
    builder.open_frame("code", builder.add(*lines[0], "fence"))
    add_json_value(builder, start, stop, settings)
    builder.close_frame(*lines[-1], "fence")
    builder.end_paragraph()
    return True


class Writer:
    """Writes a tree as frames and members. Only a source that is JSON as a whole has its records as documents."""

    def __init__(self, builder: Builder, settings: SegmentationSettings) -> None:
        self._builder = builder
        self._settings = settings
        self._longest = settings.longest_block

    def add(self, root: Node, *, documents: bool) -> None:
        self._container(root, 0, may_hold_records=documents, is_record=False, identity=frozenset())

    def _container(
        self, node: Node, depth: int, *, may_hold_records: bool, is_record: bool, identity: frozenset[int]
    ) -> None:
        """`identity`: where the members begin that come with whatever is kept of the record."""
        assert node.inside is not None
        self._builder.open_frame("json", self._builder.add(node.start, node.inside[0], "bracket"))
        holds_records = may_hold_records and self._is_record_list(node)
        inner = identifying(self._builder.source, node.children)
        for child in self._grouped(node.children):
            if self._is_opened(child) and depth < _DEEPEST:
                goes_on = may_hold_records and not holds_records
                self._container(
                    child, depth + 1, may_hold_records=goes_on, is_record=holds_records, identity=inner
                )
            else:
                self._leaf(child, is_record=is_record, identifies=child.start in identity)
            if holds_records and child is not node.children[-1]:
                self._builder.end_document(child.end)
        self._builder.close_frame(node.inside[1], node.end)
        self._builder.end_paragraph()

    def _is_record_list(self, node: Node) -> bool:
        """An array of at least two objects, most of which are too long to stay whole."""
        if self._builder.source[node.value] != "[" or len(node.children) < 2:
            return False
        return sum(self._is_long(child) and child.inside is not None for child in node.children) * 2 >= len(
            node.children
        )

    def _is_opened(self, node: Node) -> bool:
        """Whether members go one by one: of what is long, and of shorter records, where one value may count alone."""
        if node.inside is None or not node.children:
            return False
        length = node.end - node.start
        return length > self._longest or (
            length > self._settings.longest_record and len(node.children) >= self._settings.fewest_members
        )

    def _is_long(self, node: Node) -> bool:
        return node.end - node.start > self._longest

    def _leaf(self, node: Node, *, is_record: bool, identifies: bool) -> None:
        if node.inside is None and self._is_long(node) and self._string(node):
            return
        unit = self._builder.add(node.start, node.end, "json_member")
        if is_record and node.key is not None and node.key.lower() in _TITLE_KEYS:
            self._builder.set_title(unit)
        elif identifies:
            self._builder.keep_with_frame(unit)
        if node.inside is not None:
            self._builder.end_paragraph()

    def _string(self, node: Node) -> bool:
        """A long text: its sentences may go one by one, and the quotes stay. False where it has but one part."""
        source = self._builder.source
        if source[node.value] != '"':
            return False
        longest = longest_for(source, node.value, node.end, self._settings)
        parts = list(split_string(source, node.value + 1, node.end - 1, longest=longest))
        if len(parts) < 2:
            return False
        self._builder.open_frame("string", self._builder.add(node.start, node.value + 1, "bracket"))
        for start, end in parts:
            self._builder.add(start, end, "sentence")
        self._builder.close_frame(node.end - 1, node.end)
        self._builder.end_paragraph()
        return True

    def _grouped(self, children: list[Node]) -> Iterable[Node]:
        """Short scalars of an array go together: a list of ten thousand numbers is not ten thousand units."""
        group: Node | None = None
        for child in children:
            is_small = child.inside is None and child.key is None and child.end - child.start <= 40
            if group is not None and is_small and child.end - group.start <= 120:
                group = Node(group.start, group.value, child.end)
                continue
            if group is not None:
                yield group
                group = None
            if is_small:
                group = child
            else:
                yield child
        if group is not None:
            yield group
