"""A page read into its text: a view without markup, the blocks of it, and the elements that they stand in."""

import re
from dataclasses import dataclass, field

from compression.segmentation.addresses import Addresses
from compression.segmentation.markup import (
    ASIDE,
    ASIDE_ROLES,
    CELLS,
    ENDED_BY,
    HEADINGS,
    HIDDEN_STYLE,
    IN_CELLS,
    INLINE,
    KNOWN,
    NOT_IN_ROWS,
    VOID,
    Block,
    BlockKind,
    Element,
    Token,
    attributes_of,
    parts_of,
    tokens,
)
from compression.source.edits import EditedView
from compression.source.units import Slice

# Words with one mark of white space between each two: longer white space is cut.
_WORDS = re.compile(r"\S++(?:\s\S++)*+")
_ESCAPED_WORDS = re.compile(r"(?<!\\)(?:[^\s\\]|\\[^nrt])++(?: (?:[^\s\\]|\\[^nrt])++)*+")
_BLANK_LINES = re.compile(r"(?:[ \t\r\f]*+\n)*+")
_TELLING = re.compile(r"role|hidden|style", re.IGNORECASE)

# Characters. A row with more is there for its place on the screen, and its cells have nothing to do with each other.
_LONGEST_ROW = 1_000


@dataclass(slots=True)
class _Gap:
    """What lies between two stretches of text: where it begins, white space and tags in it that could part them."""

    start: int
    space: tuple[int, int] | None = None
    line_end: tuple[int, int] | None = None
    breaks: bool = False
    begins_part: bool = False
    tag: Token | None = None
    link: Token | None = None
    needed: list[Token] = field(default_factory=list)


class PageReader:
    """One pass over the tokens. `is_escaped`: the text is the inside of a JSON string, and stays as it is written.
    `addresses` says which links keep theirs."""

    def __init__(self, source: str, addresses: Addresses, *, is_escaped: bool = False) -> None:
        self.source = source
        self.view = EditedView(source)
        self._addresses = addresses
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
        self._divs = 0
        self._pre = -1
        self._address = Slice(0, 0)

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
        begins_part = self._gap.begins_part
        self._join(start)
        block = self._block or self._begin_block()
        if begins_part and block.kind == "row":
            block.parts.append((self._lead, block.letters, block.linked, self._stack[-1]))
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
        kept = gap.needed if gap.link is None else sorted([*gap.needed, gap.link], key=_start_of)
        first = kept[0].start if kept else start
        self._lead = view.length
        if gap.breaks and view.length:
            space = next((each for each in (gap.line_end, gap.space) if each and each[1] <= first), None)
            if space is not None:
                self._keep_space(*space)
            elif gap.tag is not None and not gap.needed and gap.tag.start < first:
                self._keep_tag(gap.tag)
            self._lead = view.length
        elif gap.space and self._block is not None and not gap.needed and gap.space[1] <= first:
            self._keep_space(*gap.space)
        for token in kept:
            self._keep_tag(token)

    def _keep_space(self, start: int, end: int) -> None:
        if self.source[start] == "&":
            self.view.decode(start, end, "\u00a0")
        else:
            self.view.keep(start, end)

    def _keep_tag(self, token: Token) -> None:
        """The tag without its attributes, but for an address that is asked for."""
        if token.kind == "open":
            self.view.keep(token.start, token.start + 1 + len(token.name))
            if token is self._gap.link:
                self.view.keep(*self._address)
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
        if name in INLINE:
            if name == "a":
                self._link_depth = len(self._stack) if "href" in token.attributes else -1
                self._gap.link = None
                address = self._addresses.of(self.source, token)
                if address is not None:
                    self._gap.link, self._address = token, address
            return
        if name == "br":
            self._break_line(token)
            return
        if self._in_row >= 0 and name in IN_CELLS:
            self._divs += name == "div"
            self._break_line(token)
            return
        if name in CELLS and self._is_simple_row():
            self._cell(token)
            return
        self._end_row(is_layout=name in NOT_IN_ROWS)
        self._end_block()
        self._gap.tag = token
        if name in VOID or token.attributes.endswith("/"):
            if name == "input":
                self.elements[self._stack[-1]].has_fields = True
            return
        self._push(token)

    def _break_line(self, token: Token) -> None:
        """A line's end inside a block; two end it."""
        if self._in_row >= 0:
            self._gap.begins_part = True
            if self._gap.space is None and not self._gap.needed and self._block is not None:
                self._gap.needed.append(token)
            return
        if self._block is None:
            if self._gap.space is None:
                self._gap.needed = []
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
        while self.elements[self._stack[-1]].name in CELLS:
            self._pop()
        if self._in_row < 0:
            self._end_block()
            self._in_row, self._divs = self._stack[-1], 0
        if self._gap.needed and self._gap.needed[-1].name not in CELLS:
            self._gap.needed.pop()
        self._gap.needed.append(token)
        self._gap.begins_part = True
        self._push(token)

    def _end_row(self, *, is_layout: bool = False) -> None:
        if self._in_row >= 0:
            self._in_row = -1
            row = self._block
            if row is not None and row.parts and (is_layout or row.letters > _LONGEST_ROW):
                self.blocks[-1:] = parts_of(row)
            self._end_block()
            self._gap.needed = []

    def _push(self, token: Token) -> None:
        name = token.name
        while (top := self.elements[self._stack[-1]].name) == "p" or name in ENDED_BY.get(top, ()):
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
        if token.name in ASIDE:
            return True
        if token.name == "header":
            return not (self._open.get("article") or self._open.get("main"))
        if not token.attributes or _TELLING.search(token.attributes) is None:
            return False
        found = attributes_of(token.attributes)
        return (
            found.get("role") in ASIDE_ROLES
            or "hidden" in found
            or found.get("aria-hidden") == "true"
            or found.get("aria-modal") == "true"
            or HIDDEN_STYLE.search(found.get("style", "")) is not None
        )

    def _closed(self, token: Token) -> None:
        name = token.name
        if name == "a":
            self._link_depth = -1
            self._gap.link = None
        if name in INLINE or not self._open.get(name):
            return
        if self._in_row >= 0 and name in CELLS:
            while self.elements[self._stack[-1]].name != "tr" and len(self._stack) > 1:
                if self._pop() == name:
                    break
            return
        if self._in_row >= 0 and (name in ("p", "label") or (name == "div" and self._divs)):
            self._divs -= name == "div"
            self._break_line(token)
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


def _start_of(token: Token) -> int:
    return token.start
