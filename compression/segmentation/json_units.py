"""JSON as units: members, elements and sentences of long strings, which can go while what is left still parses."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from compression.segmentation.lines import Line
from compression.segmentation.pages import page_in_string
from compression.segmentation.prose import longest_for
from compression.source.edits import with_markup
from compression.source.json_tree import Node, json_end, read_tree
from compression.source.units import Builder, SegmentationSettings

_CALLED_KEYS = frozenset(
    {
        "id", "uid", "uuid", "guid", "key", "code", "number", "num", "no", "nr", "name", "title", "path", "file",
        "filename", "email", "sku", "slug", "ref", "sha", "hash", "handle", "subject",
    }
)  # fmt: skip
_PART_OF_NAME = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_KEY = re.compile(r'"[^\s"\\]{1,64}"|-?\d{1,20}(?![\d.eE])')
_NUMBER = re.compile(r"-?\d")
_NAME = re.compile(r'"[^"\\\n]{1,80}"')
_DATE = re.compile(r'"\d{4}-\d\d(?:-\d\d)?(?:[T ]\d\d:\d\d[^"\n]{0,16})?"')
_LONGEST = 100
# A name of more words is a sentence.
_MOST_WORDS = 10
_NEARLY_ALL = 0.9


def identifying(source: str, children: Sequence[Node]) -> frozenset[int]:
    """Offsets of the members that identify the objects among `children`; the work grows with their length."""
    records = [child for child in children if child.inside is not None and source[child.value] == "{"]
    if not records:
        return frozenset()
    fields: dict[str, list[str]] = {}
    for record in records:
        for member in _short(record):
            fields.setdefault(member.key or "", []).append(source[member.value : member.end])
    chosen = _of_one(fields) if len(records) == 1 else _of_many(fields, len(records))
    return frozenset(member.start for record in records for member in _short(record) if member.key in chosen)


def is_called_key(name: str) -> bool:
    """`id`, `orderId`, `file_path`; not `paid`."""
    parts = _PART_OF_NAME.findall(name[-40:])
    return bool(parts) and parts[-1].lower() in _CALLED_KEYS


def _short(record: Node) -> Iterator[Node]:
    for member in record.children:
        if member.inside is None and member.key is not None and member.end - member.start <= _LONGEST:
            yield member


def _of_one(fields: dict[str, list[str]]) -> set[str]:
    """Without siblings only what a member is called tells it: the first that is called a key."""
    called = [key for key, own in fields.items() if is_called_key(key) and _class(own[0])]
    return set(called[:1])


def _of_many(fields: dict[str, list[str]], records: int) -> set[str]:
    chosen: dict[str, str] = {}
    ordered = sorted(fields, key=lambda key: not is_called_key(key))
    for key in ordered:
        values = fields[key]
        is_unique = len(set(values)) >= _NEARLY_ALL * len(values) and len(values) * 2 >= records
        kind = _class_of_all(values, key) if is_unique else ""
        if kind and kind not in chosen:
            chosen[kind] = key
    # A key and a name say what it is; without either its date does.
    return {key for kind, key in chosen.items() if kind != "date" or len(chosen) == 1}


def _class_of_all(values: Sequence[str], key: str) -> str:
    """The class that most values have; bare numbers are a key only where they are called one."""
    classes = [_class(value) for value in values]
    best = Counter(classes).most_common(1)[0][0]
    if best == "key" and _NUMBER.match(values[0]) and not is_called_key(key):
        return ""
    return best if classes.count(best) * 5 >= len(classes) * 4 else ""


def _class(value: str) -> str:
    if _DATE.fullmatch(value):
        return "date"
    if _KEY.fullmatch(value):
        return "key"
    if _NAME.fullmatch(value) and len(value.split()) <= _MOST_WORDS and any(map(str.isalpha, value)):
        return "name"
    return ""


# Some marks of other scripts look like ASCII ones; they are intended.
# ruff: noqa: RUF001


# Escaped line ends and marks that end a sentence; any other escape is matched so that it is passed over whole.
# A run of marks is tried from its first one only, or a line of dots would cost the square of its length.
_PART = re.compile(
    r"(?P<cut>(?:\\[nr])+(?:\\t|[ \t])*+"
    r"|(?P<mark>(?<![.!?…])[.!?…]++(?:\\[\"']|[\"'”’)\]*_])*+)(?=[ \t]|\\[nr])(?:[ \t]|\\[nr])*+"
    r"|(?P<wide>[。！？]++[”’」』）】》]*+))|\\u[0-9a-fA-F]{4}|\\."
)


def split_string(source: str, start: int, end: int, *, longest: int) -> Iterator[tuple[int, int]]:
    """Spans of the sentences and lines of the string content `source[start:end]`; escaped line ends lie between.

    A span of more than `longest` characters is cut at a space, if it has one.
    """
    begin = start
    for found in _PART.finditer(source, start, end):
        if found.group("cut") is None or _goes_on(source, found, end):
            continue
        stop = max(found.end("mark"), found.end("wide"), found.start())
        if stop > begin:
            yield from _shortened(source, begin, stop, longest)
        begin = found.end()
    if begin < end:
        yield from _shortened(source, begin, end, longest)


def _goes_on(source: str, found: re.Match[str], end: int) -> bool:
    """After a mark and a space, a small letter says that the sentence has not ended."""
    if found.group("mark") is None or found.end() >= end:
        return False
    return source[found.end()].islower() and source[found.end() - 1] in " \t"


def _shortened(source: str, start: int, end: int, longest: int) -> Iterator[tuple[int, int]]:
    while end - start > longest:
        cut = source.rfind(" ", start + 1, start + longest)
        if cut < 0:
            cut = source.find(" ", start + longest, end)
        if cut < 0:
            break
        yield start, cut
        start = cut + 1
    if start < end:
        yield start, end


# The name of a file in a markup language: what stands beside it is its source, to be edited, and no page to be read.
_MARKUP_FILE = re.compile(
    r'"(?![a-z]{2,8}://)[^"\s?#]{1,200}\.(?:x?html?|vue|svelte|astro|[jt]sx|erb|jinja2?|j2|tmpl|php)"'
)
_TITLE_KEYS = frozenset({'"title"', '"name"', '"heading"', '"headline"', '"subject"'})
_OPENING = re.compile(r"\ufeff?[ \t\r\n]*[\[{]")
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
        """The end of the JSON value that begins the line at `start`; None where none ends before `stop`."""
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
        is_file = self._names_markup_file(node)
        for child in self._grouped(node.children):
            if self._is_opened(child) and depth < _DEEPEST:
                goes_on = may_hold_records and not holds_records
                self._container(
                    child, depth + 1, may_hold_records=goes_on, is_record=holds_records, identity=inner
                )
            else:
                self._leaf(child, is_record=is_record, identifies=child.start in identity, is_file=is_file)
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

    def _names_markup_file(self, node: Node) -> bool:
        source = self._builder.source
        return any(_MARKUP_FILE.fullmatch(source, child.value, child.end) for child in _short(node))

    def _leaf(self, node: Node, *, is_record: bool, identifies: bool, is_file: bool) -> None:
        if node.inside is None and self._is_long(node) and self._string(node, is_file=is_file):
            return
        unit = self._builder.add(node.start, node.end, "json_member")
        if is_record and node.key is not None and node.key.lower() in _TITLE_KEYS:
            self._builder.set_title(unit)
        elif identifies:
            self._builder.keep_with_frame(unit)
        if node.inside is not None:
            self._builder.end_paragraph()

    def _string(self, node: Node, *, is_file: bool) -> bool:
        """A long text: its sentences may go one by one, and the quotes stay. False where it has but one part."""
        source = self._builder.source
        if source[node.value] != '"':
            return False
        page = None if is_file else page_in_string(source[node.value + 1 : node.end - 1], self._settings)
        if page is not None:
            self._builder.open_frame("string", self._builder.add(node.start, node.value + 1, "bracket"))
            self._builder.graft(with_markup(page), node.value + 1)
            self._builder.close_frame(node.end - 1, node.end)
            self._builder.end_paragraph()
            return True
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
