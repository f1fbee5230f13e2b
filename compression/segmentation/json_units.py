"""JSON as units: members and elements that can go while what is left still parses."""

# Marks of other scripts look like ASCII ones; here they are meant.
# ruff: noqa: RUF001

from __future__ import annotations

import re
from collections.abc import Iterable

from compression.segmentation.builder import Builder
from compression.segmentation.json_tree import Node, json_end, read_tree
from compression.segmentation.sentences import split_sentences
from compression.segmentation.settings import SegmentationSettings

_TITLE_KEYS = frozenset(
    {'"title"', '"name"', '"heading"', '"headline"', '"subject"', '"question"', '"source"', '"id"'}
)
_PROSE = re.compile(r"[.!?][\"'”’)\]]{0,3}\s+[^\W\da-z_]|[。！？]")
_OPENING = re.compile(r"[ \t\r\n]*[\[{]")
_DEEPEST = 200


def json_until(source: str, start: int, stop: int) -> tuple[int | None, int]:
    """Where the JSON value that begins at `start` ends, None where none does; and from where to look again."""
    opening = _OPENING.match(source, start, stop)
    if opening is None:
        return None, start
    end, failed = json_end(source, opening.end() - 1)
    if end is None:
        # Looking again inside what has just been read could cost the square of its length.
        return None, stop if failed is None else failed
    return (end if end <= stop else None), end


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


class Writer:
    """Writes a tree as frames and members."""

    def __init__(self, builder: Builder, settings: SegmentationSettings) -> None:
        self._builder = builder
        self._settings = settings
        self._longest = settings.longest_block

    def add(self, root: Node, *, documents: bool) -> None:
        self._container(root, depth=0, records=documents)

    def _container(self, node: Node, *, depth: int, records: bool = False) -> None:
        assert node.inside is not None
        self._builder.open_frame("json", self._builder.add(node.start, node.inside[0], "bracket"))
        is_records = records and self._builder.source[node.value] == "["
        for child in self._grouped(node.children):
            self._child(child, depth + 1)
            if is_records and child.inside is not None and child is not node.children[-1]:
                self._builder.end_document(child.end)
        self._builder.close_frame(node.inside[1], node.end)
        self._builder.end_paragraph()

    def _child(self, child: Node, depth: int) -> None:
        size = child.end - child.start
        if child.inside is not None and size > self._longest and child.children and depth < _DEEPEST:
            self._container(child, depth=depth)
        elif child.inside is None and size > self._longest and self._is_prose(child):
            self._string(child)
        else:
            unit = self._builder.add(child.start, child.end, "json_member")
            if child.key is not None and child.key.lower() in _TITLE_KEYS and depth > 1:
                self._builder.set_title(unit)
            if child.inside is not None:
                self._builder.end_paragraph()

    def _is_prose(self, node: Node) -> bool:
        source = self._builder.source
        return source[node.value] == '"' and _PROSE.search(source, node.value, node.end) is not None

    def _string(self, node: Node) -> None:
        """A long text: its sentences may go one by one, and the quotes stay."""
        opening = self._builder.add(node.start, node.value + 1, "bracket")
        self._builder.open_frame("string", opening)
        source = self._builder.source
        for start, end in split_sentences(source, node.value + 1, node.end - 1, longest=1 << 40):
            self._builder.add(start, end, "sentence")
        self._builder.close_frame(node.end - 1, node.end)
        self._builder.end_paragraph()

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
