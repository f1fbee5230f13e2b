"""XML as units, as JSON is cut: a feed's items, a build's dependencies and a report's tests are records.

What is well-formed and has one root is data: elements go one by one, and those around them stay, so that what is left
is well-formed too. Text between elements makes their element one text, as a paragraph is: its sentences may go one by
one, but are never cut within an element.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from compression.segmentation.json_units import is_called_key
from compression.segmentation.lines import ends_sentence
from compression.segmentation.prose import add_sentences, longest_for, split_sentences
from compression.source.units import Builder, SegmentationSettings

# Some marks of other scripts look like ASCII ones; they are intended.
# ruff: noqa: RUF001

_BEGINS = re.compile(r"<\?xml\b|<[A-Za-z_][\w:.-]{0,80}[\s/>]")
_MARK = re.compile(
    r"<(?P<close>/)?(?P<name>[A-Za-z_][\w:.-]{0,80}+)(?P<attributes>(?:\s(?:[^<>\"']++|\"[^\"<]*+\"|'[^'<]*+')*+)?+)"
    r"(?P<empty>/)?>|<(?P<other>!--|!\[CDATA\[|\?|!)|(?P<bad><)"
)
_ENDS = {"!--": "-->", "![CDATA[": "]]>", "?": "?>", "!": ">"}
_CDATA = "<![CDATA["
_DEEPEST = 48
_LONGEST_NAME = 100
# An element in a text that is longer, or that ends as a sentence does, is no word of a sentence but stands by itself.
_LONGEST_INLINE = 120
_LONGEST_REFERENCE = 40
_MOST_IDENTIFYING = 2
_LONGEST_PROLOG = 200
_SHORTEST_WRITTEN = 100
_SENTENCE_END = re.compile(r"\w[.!?…][\"'”’)»]?(?:[\s<]|\Z)|[。！？।؟]")
# A prolog without which the rest cannot be read: it declares what the text names, or how its bytes are to be read.
_NEEDED_PROLOG = re.compile(
    r"<!ENTITY\s|^\ufeff?\s{0,80}<\?xml\s[^<>]{0,80}\sencoding\s{0,4}=\s{0,4}[\"'](?!utf-?8[\"'])",
    re.IGNORECASE,
)
_NAMED_REFERENCE = re.compile(r"&(?!(?:amp|lt|gt|quot|apos);)[A-Za-z_][\w.-]{0,80};")
_TITLES = frozenset({"title", "name", "heading", "headline", "subject"})


@dataclass(slots=True, eq=False)
class Element:
    """`source[start:end]`, its content `source[opened:closed]`; a comment, an instruction and CDATA have no name."""

    name: str
    start: int
    opened: int
    closed: int = -1
    end: int = -1
    children: list[Element] = field(default_factory=list)
    has_text: bool = False


def read_xml(source: str) -> Element | None:
    """The root of a text that is one well-formed element with others in it; None for any other."""
    begin = _content_start(source)
    if _BEGINS.match(source, begin) is None or source.rstrip()[-1:] != ">":
        return None
    outside = Element("", 0, 0)
    stack, at = [outside], begin
    while (found := _MARK.search(source, at)) is not None:
        top = stack[-1]
        top.has_text = top.has_text or not _is_blank(source, at, found.start())
        at = found.end()
        if found["bad"]:
            return None
        if found["other"]:
            end = _end_of_other(source, at, found["other"])
            if end < 0:
                return None
            if found["other"] != "!":
                top.children.append(Element("", found.start(), at, end, end))
            top.has_text = top.has_text or found["other"] == "![CDATA["
            at = end
        elif found["close"]:
            if top.name != found["name"]:
                return None
            top.closed, top.end = found.start(), at
            stack.pop()
        else:
            element = Element(found["name"], found.start(), at, at, at)
            top.children.append(element)
            if not (found["empty"] or found["attributes"].endswith("/")):
                stack.append(element)
        if outside.has_text:
            return None
    roots = [each for each in outside.children if each.name]
    is_whole = len(stack) == 1 and len(roots) == 1 and _is_blank(source, at, len(source))
    return roots[0] if is_whole and roots[0].children and not roots[0].has_text else None


def _content_start(source: str) -> int:
    """After a mark of the byte order, and white space."""
    start = int(source.startswith("\ufeff"))
    return _trimmed(source, start, len(source))[0]


def _end_of_other(source: str, at: int, mark: str) -> int:
    """Where a comment, an instruction or a declaration ends that begins before `at`; -1 where it does not."""
    closing = _ENDS[mark]
    end = source.find(closing, at)
    if mark == "!" and end >= 0 and source.find("[", at, end) >= 0:
        closing = "]>"
        end = source.find(closing, at)
    return end if end < 0 else end + len(closing)


def _is_blank(source: str, start: int, end: int) -> bool:
    return start == end or source[start:end].isspace()


def add_xml_source(builder: Builder, settings: SegmentationSettings) -> bool:
    """Add the whole source as XML: false, and nothing added, where it is none, or passages in tags of a prompt."""
    root = read_xml(builder.source)
    is_data = root is not None and (
        builder.source.startswith("<?xml", _content_start(builder.source))
        or 2 * _written(builder.source, root, settings.longest_block) < len(builder.source)
    )
    if root is None or not is_data:
        return False
    _Writer(builder, settings).add(root)
    return True


def _written(source: str, root: Element, longest: int) -> int:
    """Characters in texts that are longer than a value is, or that have a sentence in them."""
    total, waiting = 0, [root]
    while waiting:
        element = waiting.pop()
        length = element.end - element.start
        if not element.has_text:
            waiting.extend(element.children)
        elif length > longest or (
            length >= _SHORTEST_WRITTEN and _SENTENCE_END.search(source, element.opened, element.closed)
        ):
            total += length
    return total


class _Writer:
    def __init__(self, builder: Builder, settings: SegmentationSettings) -> None:
        self._builder = builder
        self._settings = settings

    def add(self, root: Element) -> None:
        """What is before the root, as the declaration is, stays with its tag where it is short or needed."""
        builder = self._builder
        if root.start <= _LONGEST_PROLOG or _is_needed(builder.source, root):
            root.start = 0
        builder.add(0, root.start, "json_member")
        self._container(root, 0, may_hold_records=True, is_record=False)
        builder.add(root.end, len(builder.source), "json_member")

    def _container(self, element: Element, depth: int, *, may_hold_records: bool, is_record: bool) -> None:
        builder = self._builder
        builder.open_frame("xml", builder.add(element.start, element.opened, "bracket"))
        holds_records = may_hold_records and self._holds_records(element)
        identifying = list(_identifying(element.children))
        for child in element.children:
            if depth < _DEEPEST and self._is_opened(child):
                goes_on = may_hold_records and not holds_records
                self._container(child, depth + 1, may_hold_records=goes_on, is_record=holds_records)
                if holds_records:
                    builder.end_document(child.end)
            elif child.has_text and self._is_long(child):
                self._text(child, depth + 1)
            else:
                unit = builder.add(child.start, child.end, "json_member")
                if is_record and child.name.lower() in _TITLES:
                    builder.set_title(unit)
                elif child in identifying:
                    builder.keep_with_frame(unit)
        builder.close_frame(element.closed, element.end)
        builder.end_paragraph()

    def _holds_records(self, element: Element) -> bool:
        """Long elements of one name."""
        names = Counter(child.name for child in element.children if child.name and self._is_long(child))
        return bool(names) and names.most_common(1)[0][1] > 1

    def _is_long(self, element: Element) -> bool:
        return element.end - element.start > self._settings.longest_block

    def _is_opened(self, element: Element) -> bool:
        if not element.children or element.has_text:
            return False
        is_record = (
            element.end - element.start > self._settings.longest_record
            and len(element.children) >= self._settings.fewest_members
        )
        return is_record or self._is_long(element)

    def _text(self, element: Element, depth: int) -> None:
        """A long text: its sentences may go one by one, and its tags stay."""
        source = self._builder.source
        start, end = _trimmed(source, element.opened, element.closed)
        if source.startswith(_CDATA, start) and source.find("]]>", start, end) == end - len("]]>"):
            self._cdata(element.start, start, end, element.end)
            return
        self._builder.open_frame("string", self._builder.add(element.start, element.opened, "bracket"))
        at, inline = element.opened, list[Element]()
        for child in element.children:
            if self._is_inline(child):
                inline.append(child)
                continue
            self._sentences(at, child.start, inline)
            self._within_text(child, depth)
            at, inline = child.end, []
        self._sentences(at, element.closed, inline)
        self._builder.close_frame(element.closed, element.end)
        self._builder.end_paragraph()

    def _cdata(self, start: int, opened: int, closed: int, end: int) -> None:
        """CDATA that reaches from `opened` to `closed`, with what stays around it."""
        builder = self._builder
        opened, closed = opened + len(_CDATA), closed - len("]]>")
        builder.open_frame("string", builder.add(start, opened, "bracket"))
        add_sentences(builder, opened, closed, self._settings)
        builder.close_frame(closed, end)
        builder.end_paragraph()

    def _is_inline(self, child: Element) -> bool:
        return (
            bool(child.name)
            and child.end - child.start <= _LONGEST_INLINE
            and not ends_sentence(self._builder.source[child.opened : child.closed].rstrip())
        )

    def _within_text(self, child: Element, depth: int) -> None:
        """One unit, or where it is long, its own."""
        if depth < _DEEPEST and self._is_long(child):
            if child.has_text:
                self._text(child, depth + 1)
                return
            if self._is_opened(child):
                self._container(child, depth + 1, may_hold_records=False, is_record=False)
                return
            if self._builder.source.startswith(_CDATA, child.start):
                self._cdata(child.start, child.start, child.end, child.end)
                return
        self._builder.add(child.start, child.end, "sentence")

    def _sentences(self, start: int, end: int, inline: Sequence[Element]) -> None:
        """One unit a sentence; what would be cut within an element or a reference stays together."""
        source, builder = self._builder.source, self._builder
        longest = longest_for(source, start, end, self._settings)
        within, begin, stop = 0, start, start
        for first, last in split_sentences(source, start, end, longest=longest):
            while within < len(inline) and inline[within].end <= first:
                within += 1
            is_within = within < len(inline) and inline[within].start < first
            whole = inline[within].start if is_within else _reference(source, begin, first, end)
            if whole < 0:
                builder.add(begin, stop, "sentence")
                begin = first
            elif last - begin > longest and whole > begin:
                builder.add(begin, whole, "sentence")
                begin = whole
            stop = last
        builder.add(begin, stop, "sentence")


def _is_needed(source: str, root: Element) -> bool:
    """Whether the rest is well-formed only after what is before the root."""
    if _NEEDED_PROLOG.search(source, 0, root.start) is not None:
        return True
    is_declared = source.find("<!DOCTYPE", 0, root.start) >= 0
    return is_declared and _NAMED_REFERENCE.search(source, root.start) is not None


def _trimmed(source: str, start: int, end: int) -> tuple[int, int]:
    """The same without the white space at both ends."""
    while start < end and source[start].isspace():
        start += 1
    while end > start and source[end - 1].isspace():
        end -= 1
    return start, end


def _reference(source: str, start: int, at: int, end: int) -> int:
    """Where the reference begins that a cut at `at` would part: `&am|p;`; -1 where it parts none."""
    begin = source.rfind("&", max(start, at - _LONGEST_REFERENCE), at)
    if begin < 0 or source[at - 1].isspace() or source.find(";", begin, at) >= 0:
        return -1
    stop = source.find(";", at, min(end, at + _LONGEST_REFERENCE))
    return begin if stop >= 0 and source[begin + 1 : stop].lstrip("#").isalnum() else -1


def _identifying(children: Sequence[Element]) -> Iterator[Element]:
    """The first short texts that are called a key, whatever the namespace."""
    found = 0
    for child in children:
        is_leaf = child.has_text and not any(each.name for each in child.children)
        is_short = is_leaf and child.end - child.start <= _LONGEST_NAME
        if is_short and found < _MOST_IDENTIFYING and is_called_key(child.name.rpartition(":")[2]):
            found += 1
            yield child
