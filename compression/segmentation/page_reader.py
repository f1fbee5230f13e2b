"""A page read into its text: a view without markup, the blocks of it, and the elements that they stand in."""

import re
from dataclasses import dataclass, field
from typing import Literal

from compression.segmentation.markup import Token, attributes_of, tokens
from compression.source.edits import EditedView

_INLINE_NAMES = """
a abbr acronym b bdi bdo big cite code data del dfn em font i img ins kbd mark nobr q rb rp rt ruby s samp small
span strike strong sub sup time tt u var wbr source track picture meta link base area
"""
_INLINE = frozenset(_INLINE_NAMES.split())
_BLOCK_NAMES = """
address article aside blockquote body br button caption center col colgroup datalist dd details dialog dir div
dl dt embed fieldset figcaption figure font footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr
html input label legend li main map math menu menuitem nav noscript ol optgroup option output p param pre
progress search section select slot summary table tbody td template tfoot th thead title tr ul video audio
"""
# Elements of HTML; those that are opaque have no blocks.
KNOWN = _INLINE | frozenset(_BLOCK_NAMES.split())
_VOID_NAMES = """
area base br col embed hr img input link meta param source track wbr
"""
_VOID = frozenset(_VOID_NAMES.split())
HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
# What is beside a page's text, by what it is for.
_ASIDE_NAMES = """
nav footer aside form button select dialog noscript menu template datalist head
"""
_ASIDE = frozenset(_ASIDE_NAMES.split())
_ASIDE_ROLE_NAMES = """
navigation banner contentinfo complementary search dialog alertdialog menu menubar toolbar tablist alert status
form
"""
_ASIDE_ROLES = frozenset(_ASIDE_ROLE_NAMES.split())
_HIDDEN_STYLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden")
# An element of these ends where the next of its group begins, wherever its end was forgotten.
_ENDED_BY: dict[str, frozenset[str]] = {
    "li": frozenset({"li"}),
    "dt": frozenset({"dt", "dd"}),
    "dd": frozenset({"dt", "dd"}),
    "tr": frozenset({"tr"}),
    "td": frozenset({"td", "th", "tr"}),
    "th": frozenset({"td", "th", "tr"}),
    "option": frozenset({"option"}),
}
_CELLS = frozenset({"td", "th"})
# Words with one mark of white space between each two: longer white space is cut.
_WORDS = re.compile(r"\S++(?:\s\S++)*+")
_ESCAPED_WORDS = re.compile(r"(?<!\\)(?:[^\s\\]|\\[^nrt])++(?: (?:[^\s\\]|\\[^nrt])++)*+")
_BLANK_LINES = re.compile(r"(?:[ \t\r\f]*+\n)*+")
_TELLING = re.compile(r"role|hidden|style", re.IGNORECASE)

BlockKind = Literal["text", "heading", "item", "row", "code"]


@dataclass(slots=True)
class Element:
    """An element that holds blocks. `is_aside`: it, or one around it, says that it is beside the page's text. `table`:
    the number of the nearest table around it, itself included; 0 where there is none."""

    name: str
    parent: int
    is_aside: bool
    has_fields: bool = False
    table: int = 0


@dataclass(slots=True)
class Block:
    """`view[start:end]`, text without a break in it, in `element`. `letters` and `linked` count characters of words,
    all and those in links. Rows of one `table` stand together."""

    kind: BlockKind
    start: int
    end: int
    element: int
    letters: int = 0
    linked: int = 0
    table: int = -1


@dataclass(slots=True)
class _Gap:
    """What lies between two stretches of text: where it begins, white space and tags in it that could part them."""

    start: int
    space: tuple[int, int] | None = None
    line_end: tuple[int, int] | None = None
    breaks: bool = False
    tag: Token | None = None
    needed: list[Token] = field(default_factory=list)


class PageReader:
    """One pass over the tokens. `is_escaped`: the text is the inside of a JSON string, and stays as it is written."""

    def __init__(self, source: str, *, is_escaped: bool = False) -> None:
        self.source = source
        self.view = EditedView(source)
        self.blocks: list[Block] = []
        self.elements: list[Element] = [Element("", -1, is_aside=False)]
        self._stack = [0]
        self._open: dict[str, int] = {}
        self._is_escaped = is_escaped
        self._words = _ESCAPED_WORDS if is_escaped else _WORDS
        self._gap = _Gap(0)
        self._block: Block | None = None
        self._heading: Token | None = None
        self._lead = 0
        self._link_depth = -1
        self._in_row = -1
        self._pre = -1

    def read(self) -> None:
        at = 0
        for token in tokens(self.source):
            self._text(at, token.start)
            at = token.end
            if token.kind == "reference":
                self._reference(token)
            elif token.kind != "nothing" and token.name not in KNOWN and "-" not in token.name:
                self._text(token.start, token.end)
            elif token.kind == "open":
                self._opened(token)
            elif token.kind == "close":
                self._closed(token)
        self._text(at, len(self.source))
        self._end_block()
        self.view.finish()

    # Text

    def _text(self, start: int, end: int) -> None:
        if start == end:
            return
        if self._pre >= 0 and not self._is_escaped:
            self._verbatim(start, end)
            return
        at = start
        for found in self._words.finditer(self.source, start, end):
            self._space(at, found.start())
            self._visible(*found.span())
            at = found.end()
        self._space(at, end)

    def _verbatim(self, start: int, end: int) -> None:
        """White space is part of such a text, but for the lines before it."""
        if self._block is None:
            found = _BLANK_LINES.match(self.source, start, end)
            if found is not None and found.end() > start:
                self._space(start, found.end())
                start = found.end()
        if self.source[start:end].isspace() and self._block is None:
            self._space(start, end)
        elif start < end:
            self._visible(start, end)

    def _space(self, start: int, end: int) -> None:
        if start == end:
            return
        width = 2 if self._is_escaped and self.source[start] == "\\" else 1
        if self._gap.space is None:
            self._gap.space = (start, start + width)
        if self._gap.line_end is None:
            at = self.source.find("\\n" if self._is_escaped else "\n", start, end)
            if at >= 0:
                self._gap.line_end = (at, at + (2 if self._is_escaped else 1))

    def _visible(self, start: int, end: int, character: str = "") -> None:
        self._join(start)
        block = self._block or self._begin_block()
        if character:
            self.view.decode(start, end, character)
        else:
            self.view.keep(start, end)
        block.end = self.view.length
        block.letters += end - start if not character else 1
        if self._link_depth >= 0:
            block.linked += end - start if not character else 1
        self._gap = _Gap(end)

    def _reference(self, token: Token) -> None:
        if token.name.isspace() or token.name in "\u200b\ufeff":
            if self._gap.space is None and self._block is not None and not self._gap.breaks:
                self._gap.space = (token.start, token.end)
        elif self._is_escaped and token.name in '"\\':
            self._visible(token.start, token.end)
        else:
            self._visible(token.start, token.end, token.name)

    def _join(self, start: int) -> None:
        """Keep of the gap before `start` what parts the text after it from the text before it."""
        gap, view = self._gap, self.view
        self._lead = view.length
        if gap.breaks and view.length:
            before = gap.needed[0].start if gap.needed else start
            space = next((each for each in (gap.line_end, gap.space) if each and each[1] <= before), None)
            if space is not None:
                self._keep_space(*space)
            elif gap.tag is not None and not gap.needed:
                self._keep_tag(gap.tag)
            self._lead = view.length
        elif gap.space and self._block is not None and not gap.needed:
            self._keep_space(*gap.space)
        for token in gap.needed:
            self._keep_tag(token)

    def _keep_space(self, start: int, end: int) -> None:
        if self.source[start] == "&":
            self.view.decode(start, end, "\u00a0")
        else:
            self.view.keep(start, end)

    def _keep_tag(self, token: Token) -> None:
        """The tag without its attributes."""
        if token.kind == "open":
            self.view.keep(token.start, token.start + 1 + len(token.name))
            self.view.keep(token.end - 1, token.end)
        else:
            self.view.keep(token.start, token.end)

    # Blocks

    def _begin_block(self) -> Block:
        element = self._stack[-1]
        start = self._lead
        kind: BlockKind = "text"
        if self._in_row >= 0:
            kind = "row"
        elif self._pre >= 0:
            kind = "code"
        elif self._heading is not None:
            kind = "heading"
        elif self._is_item():
            kind = "item"
        self._block = Block(kind, start, start, element)
        if kind == "row":
            self._block.table = self._in_row
        self.blocks.append(self._block)
        return self._block

    def _is_item(self) -> bool:
        return any(self.elements[number].name in ("li", "dt") for number in self._stack[-3:])

    def _end_block(self) -> None:
        self._block = None
        self._gap.breaks = True

    # Tags

    def _opened(self, token: Token) -> None:
        name = token.name
        if name in _INLINE:
            if name == "a":
                self._link_depth = len(self._stack) if "href" in token.attributes else -1
            return
        if name == "br":
            self._break_line(token)
            return
        if self._in_row >= 0 and name in ("p", "label"):
            return
        if name in _CELLS and self._is_simple_row():
            self._cell(token)
            return
        self._end_row()
        self._end_block()
        self._gap.tag = token
        if name in _VOID or token.attributes.endswith("/"):
            if name == "input":
                self.elements[self._stack[-1]].has_fields = True
            return
        self._push(token)

    def _break_line(self, token: Token) -> None:
        """A line's end inside a block; two end it."""
        if self._block is None or self._in_row >= 0:
            if self._gap.space is None and self._in_row < 0:
                self._gap.needed = []
            elif self._gap.space is None and not (self._gap.needed and self._gap.needed[-1].name == "br"):
                self._gap.needed.append(token)
            return
        if self._gap.tag is not None and self._gap.tag.name == "br":
            self._end_block()
            return
        self._gap.tag = token
        if self._gap.space is None and self._gap.line_end is None:
            self._gap.needed = [token]

    def _is_simple_row(self) -> bool:
        return self.elements[self._stack[-1]].name in ("tr", "td", "th") and self._pre < 0

    def _cell(self, token: Token) -> None:
        """A cell goes on in its row's block; the tags between cells say where one ends."""
        while self.elements[self._stack[-1]].name in _CELLS:
            self._pop()
        if self._in_row < 0:
            self._end_block()
            self._in_row = self._stack[-1]
        self._gap.needed.append(token)
        self._push(token)

    def _end_row(self) -> None:
        if self._in_row >= 0:
            self._in_row = -1
            self._end_block()
            self._gap.needed = []

    def _push(self, token: Token) -> None:
        name = token.name
        while (top := self.elements[self._stack[-1]].name) == "p" or name in _ENDED_BY.get(top, ()):
            self._pop()
        outer = self._stack[-1]
        number, around = len(self.elements), self.elements[outer]
        is_aside = around.is_aside or self._says_aside(token)
        table = number if name == "table" else around.table
        self.elements.append(Element(name, outer, is_aside, table=table))
        self._stack.append(number)
        self._open[name] = self._open.get(name, 0) + 1
        if name in ("form", "button", "select"):
            self.elements[outer].has_fields = True
        if name == "pre":
            self._pre = number
        if name in HEADINGS and self._heading is None:
            self._heading = token
            self._gap.needed = [token]

    def _says_aside(self, token: Token) -> bool:
        if token.name in _ASIDE:
            return True
        if token.name == "header":
            return not (self._open.get("article") or self._open.get("main"))
        if not token.attributes or _TELLING.search(token.attributes) is None:
            return False
        found = attributes_of(token.attributes)
        return (
            found.get("role") in _ASIDE_ROLES
            or "hidden" in found
            or found.get("aria-hidden") == "true"
            or found.get("aria-modal") == "true"
            or _HIDDEN_STYLE.search(found.get("style", "")) is not None
        )

    def _closed(self, token: Token) -> None:
        name = token.name
        if name == "a":
            self._link_depth = -1
        if name in _INLINE or not self._open.get(name):
            return
        if self._in_row >= 0 and name in _CELLS:
            while self.elements[self._stack[-1]].name != "tr" and len(self._stack) > 1:
                if self._pop() == name:
                    break
            return
        self._end_row()
        self._end_block()
        self._gap.tag = self._gap.tag or token
        while self._pop() != name:
            pass

    def _pop(self) -> str:
        number = self._stack.pop()
        name = self.elements[number].name
        self._open[name] -= 1
        if number == self._pre:
            self._pre = -1
        if name in HEADINGS and not any(self._open.get(each) for each in HEADINGS):
            self._heading = None
            self._gap.needed = []
        if self._link_depth > len(self._stack):
            self._link_depth = -1
        return name
