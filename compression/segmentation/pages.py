"""Web pages: found in a source, and cut into headings, sentences, items and rows over a view without their markup."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby, islice

from compression.segmentation.addresses import Addresses
from compression.segmentation.main_text import find_main
from compression.segmentation.markup import KNOWN, OPAQUE, Block
from compression.segmentation.page_reader import PageReader
from compression.segmentation.prose import add_sentences, split_long
from compression.source.units import Builder, Segmentation, SegmentationSettings, Slice, merged

_BEGINS = re.compile(r"^[ \t]*(?:<!doctype\s+html\b|<html[\s>])", re.IGNORECASE | re.MULTILINE)
_ENDS = re.compile(r"<\\?/html\s*>", re.IGNORECASE)
_FRAGMENT = re.compile(
    r"\s*<(?:!--|(?:div|section|article|main|p|ul|ol|table|h[1-6]|header|nav|span|a|form|body|head|meta|link|style|script"
    r"|blockquote|dl|figure|aside|footer|center|pre|title)(?:[\s>/]|\\[nt]))",
    re.IGNORECASE,
)
_CLOSING = re.compile(
    r"<\\?/(?:p|div|li|ul|ol|a|span|td|tr|table|h[1-6]|section|article|main|b|i|em|strong|body|html|script)\s*>",
    re.IGNORECASE,
)
# Of a Markdown text with some tags: a fence, the rule under a table's head. Of changes to a file: their heads.
_MARKDOWN = re.compile(r"^[ \t]{0,3}(?:```|~~~|\|?[ \t]*:?-{3,}:?[ \t]*\|)", re.MULTILINE)
_DIFF = re.compile(r"^(?:diff --git |@@ -\d)", re.MULTILINE)
_BLANK_LINE = re.compile(r"\n[ \t\r]*\n\s*")
_TAG = re.compile(r"<([a-zA-Z][\w:-]{0,40})")
_ANY_TAG = re.compile(r"<[^<>]*>")
# What a program fills in: such a text is the source of a page.
_TEMPLATE = re.compile(
    r"\{%|\{\{|<\?php|<%|\bclassName=|\sv-(?:if|for)=|\s\*ng\w{1,20}=|\sth:\w{1,20}=|\s[\w:-]{1,30}=\{"
    r"|>[^<>{}]{0,40}\{[A-Za-z_$][\w.$]{0,60}\}|\{[#/:@](?:if|each|else|await|html)\b"
    r"|^[ \t]*@(?:if|foreach|end\w{2,10})\b",
    re.MULTILINE,
)
# Pages that are served have these, too.
_IN_FRAGMENT = re.compile(
    rf"{_TEMPLATE.pattern}|\s[@:][\w.:-]{{1,40}}=|\s[(\[][\w.-]{{1,40}}[)\]]=", re.MULTILINE
)
_FEWEST, _FEWEST_IN_FRAGMENT = 4, 2
# What is around each is looked at by itself; what follows the last is text with marks in it.
_MOST_PAGES = 200
# Of the elements in a page's beginning, most are HTML's, or of a framework, which have a hyphen.
_MOST_UNKNOWN = 0.2
_OF_HTML = KNOWN | OPAQUE
# Characters: a page with less text, and that a small part of it, is a program in a page.
_LEAST_TEXT = 600
_LEAST_SHARE = 0.05
_MOSTLY = 0.9
_SAMPLE = 20_000


def find_pages(source: str) -> list[Slice]:
    """The stretches of `source` that are pages or fragments of one, in order; none where most of it is something else,
    such as a program that writes a page, or a text about one."""
    if _DIFF.search(source, 0, _SAMPLE) is not None:
        return []
    found = [Slice(start, end) for start, end in islice(_whole_pages(source), _MOST_PAGES)]
    if not found and _is_fragment(source):
        found = [Slice(0, len(source))]
    if sum(page.end - page.start for page in found) * 2 < len(source):
        return []
    return [page for page in found if _is_page(source, page)]


def _whole_pages(source: str) -> Iterator[tuple[int, int]]:
    at = 0
    """One without an end is one where nothing stands before it."""
    while (begin := _BEGINS.search(source, at)) is not None:
        end = _ENDS.search(source, begin.end())
        if end is None and source[: begin.start()].strip():
            return
        at = len(source) if end is None else end.end()
        yield begin.start(), at


def _is_fragment(source: str) -> bool:
    """It begins with a tag, as most of what is parted by blank lines does, and nothing of it is Markdown."""
    if _FRAGMENT.match(source) is None or _MARKDOWN.search(source, 0, _SAMPLE) is not None:
        return False
    parts = [part for part in _BLANK_LINE.split(source[:_SAMPLE]) if part.strip()]
    if 2 * sum(part.lstrip().startswith("<") for part in parts) <= len(parts):
        return False
    return sum(1 for _ in _CLOSING.finditer(source, 0, _SAMPLE)) >= 2


def _is_page(source: str, page: Slice) -> bool:
    """False for what a program makes a page of, and for a page that is merely mentioned."""
    if sum(1 for _ in _CLOSING.finditer(source, page.start, min(page.end, page.start + 10 * _SAMPLE))) < 2:
        return False
    said = _without(_SCRIPT, source, page)
    if _is_template(_without(_EXAMPLE, source, page)):
        return False
    names = [name.lower() for name in _TAG.findall(said)]
    unknown = sum(1 for name in names if name not in _OF_HTML and "-" not in name)
    text = sum(map(len, _ANY_TAG.sub(" ", said).split()))
    is_short = text < _LEAST_TEXT and text < _LEAST_SHARE * (page.end - page.start)
    return unknown <= _MOST_UNKNOWN * len(names) and not is_short


def _is_template(text: str) -> bool:
    is_whole = _BEGINS.search(text) is not None
    marks, fewest = (_TEMPLATE, _FEWEST) if is_whole else (_IN_FRAGMENT, _FEWEST_IN_FRAGMENT)
    return sum(1 for _ in islice(marks.finditer(text), fewest)) == fewest


_SCRIPT = re.compile(r"<(script|style|svg|math)\b")
# A page about templates has them as examples.
_EXAMPLE = re.compile(r"<(script|style|svg|math|pre|code|samp|textarea)\b")
_ELEMENT_END = {
    "script": re.compile(r"<\\?/script\b"),
    "style": re.compile(r"<\\?/style\b"),
    "svg": re.compile(r"<\\?/svg\b"),
    "math": re.compile(r"<\\?/math\b"),
    "pre": re.compile(r"<\\?/pre\b"),
    "code": re.compile(r"<\\?/code\b"),
    "samp": re.compile(r"<\\?/samp\b"),
    "textarea": re.compile(r"<\\?/textarea\b"),
}


def _without(elements: re.Pattern[str], source: str, page: Slice) -> str:
    """Its beginning, up to so many characters, without what stands in such elements."""
    pieces, at, size = [], page.start, 0
    while size < _SAMPLE and at < page.end:
        found = elements.search(source, at, page.end)
        stop = page.end if found is None else found.start()
        pieces.append(source[at : min(stop, at + _SAMPLE)])
        size += len(pieces[-1])
        if found is None:
            break
        end = _ELEMENT_END[found[1]].search(source, found.end(), page.end)
        at = page.end if end is None else end.start()
    return "".join(pieces)


def page_in_string(source: str, settings: SegmentationSettings) -> Segmentation | None:
    """The page that the inside of a JSON string is, as it is written there; None where it is none."""
    found = find_pages(source)
    if len(found) != 1 or found[0].end - found[0].start < _MOSTLY * len(source):
        return None
    page = segment_page(source, settings, is_escaped=True)
    return page if page.units else None


def segment_page(source: str, settings: SegmentationSettings, *, is_escaped: bool = False) -> Segmentation:
    """A page's units over a view of it: its text without tags, scripts and styles. A section is a document, but in a
    JSON string, which `is_escaped`.
    """
    addresses = Addresses(settings.question)
    reader = PageReader(source, addresses, is_escaped=is_escaped)
    reader.read()
    if addresses.found_none:
        reader = PageReader(source, Addresses.every(), is_escaped=is_escaped)
        reader.read()
    view = reader.view.text()
    writer = _Writer(Builder(view), reader, settings, has_sections=not is_escaped)
    writer.add()
    main = find_main(reader, view)
    stretches = _stretches(reader.blocks, main)
    return replace(writer.builder.build(), origin=reader.view.origin, main=stretches)


def _stretches(blocks: Sequence[Block], is_main: Sequence[bool]) -> tuple[Slice, ...]:
    """Where the main text is: runs of its blocks, and never nothing."""
    found: list[Slice] = []
    for is_own, run in groupby(zip(blocks, is_main, strict=True), key=lambda pair: pair[1]):
        of_run = [block for block, _ in run]
        if is_own:
            found.append(Slice(of_run[0].start, of_run[-1].end))
    return tuple(merged(found))


class _Writer:
    """Adds the blocks of a page to a builder of its view."""

    def __init__(
        self, builder: Builder, reader: PageReader, settings: SegmentationSettings, *, has_sections: bool
    ) -> None:
        self._has_sections = has_sections
        self.builder = builder
        self._reader = reader
        self._settings = settings

    def add(self) -> None:
        for table, blocks in groupby(self._reader.blocks, key=self._table_of):
            if table is None:
                for block in blocks:
                    self._add_block(block)
            else:
                self._add_table(list(blocks))

    def _table_of(self, block: Block) -> int | None:
        """The number of the table that a row stands in; None for any other block."""
        return self._reader.elements[block.element].table if block.kind == "row" else None

    def _add_block(self, block: Block) -> None:
        builder, settings = self.builder, self._settings
        if block.kind == "heading":
            if self._has_sections:
                builder.end_document(block.start)
            builder.set_title(builder.add(block.start, block.end, "heading"))
        elif block.kind == "item":
            add_sentences(builder, block.start, block.end, settings, "list_item", whole=True)
        elif block.kind == "code":
            for start, end in split_long(
                builder.source, block.start, block.end, longest=settings.longest_block
            ):
                builder.add(start, end, "code_block")
        else:
            add_sentences(builder, block.start, block.end, settings)
        builder.end_paragraph()

    def _add_table(self, rows: Sequence[Block]) -> None:
        """The rows in the frame of the first, where it is a head of columns; a table of one row is a layout."""
        builder = self.builder
        if len(rows) == 1:
            add_sentences(builder, rows[0].start, rows[0].end, self._settings)
            builder.end_paragraph()
            return
        has_head = self._is_head(rows[0])
        if has_head:
            opening = builder.add(rows[0].start, rows[0].end, "table_header")
            builder.open_frame("table", opening)
        for row in rows[has_head:]:
            for start, end in split_long(
                builder.source, row.start, row.end, longest=4 * self._settings.longest_unit
            ):
                builder.add(start, end, "table_row")
        if has_head:
            builder.close_frame()
        builder.end_paragraph()

    def _is_head(self, row: Block) -> bool:
        text = self.builder.source[row.start : row.end]
        return "<th>" in text.lower() and "<td>" not in text.lower()
