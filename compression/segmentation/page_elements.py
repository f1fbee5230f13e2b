"""Elements of HTML by what they are for, and what a page is read into: its elements that hold blocks, its blocks."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

_INLINE_NAMES = """
a abbr acronym b bdi bdo big cite code data del dfn em font i img ins kbd mark nobr q rb rp rt ruby s samp small
span strike strong sub sup time tt u var wbr source track picture meta link base area
"""
INLINE = frozenset(_INLINE_NAMES.split())
_BLOCK_NAMES = """
address article aside blockquote body br button caption center col colgroup datalist dd details dialog dir div
dl dt embed fieldset figcaption figure font footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr
html input label legend li main map math menu menuitem nav noscript ol optgroup option output p param pre
progress search section select slot summary table tbody td template tfoot th thead title tr ul video audio
"""
# Elements of HTML; those that are opaque have no blocks.
KNOWN = INLINE | frozenset(_BLOCK_NAMES.split())
_VOID_NAMES = """
area base br col embed hr img input link meta param source track wbr
"""
VOID = frozenset(_VOID_NAMES.split())
HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
# What is beside a page's text, by what it is for.
_ASIDE_NAMES = """
nav footer aside button select dialog noscript menu template datalist head
"""
ASIDE = frozenset(_ASIDE_NAMES.split())
_ASIDE_ROLE_NAMES = """
navigation banner contentinfo complementary search dialog alertdialog menu menubar toolbar tablist alert status
form
"""
ASIDE_ROLES = frozenset(_ASIDE_ROLE_NAMES.split())
HIDDEN_STYLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden")
# An element of these ends where the next of its group begins, wherever its end was forgotten.
ENDED_BY: dict[str, frozenset[str]] = {
    "li": frozenset({"li"}),
    "dt": frozenset({"dt", "dd"}),
    "dd": frozenset({"dt", "dd"}),
    "tr": frozenset({"tr"}),
    "td": frozenset({"td", "th", "tr"}),
    "th": frozenset({"td", "th", "tr"}),
    "option": frozenset({"option"}),
}
CELLS = frozenset({"td", "th"})
# In a cell these part its lines; those are of a table that only lays a page out.
IN_CELLS = frozenset({"p", "label", "div"})
NOT_IN_ROWS = HEADINGS | {"table", "form", "hr", "article", "main", "nav", "header", "footer"}

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
    all and those in links. Rows of one `table` stand together. `parts` of a row begin at its cells and at the lines in
    them: what was counted up to each, and its element."""

    kind: BlockKind
    start: int
    end: int
    element: int
    letters: int = 0
    linked: int = 0
    table: int = -1
    parts: list[tuple[int, int, int, int]] = field(default_factory=list)


def parts_of(row: Block) -> Iterator[Block]:
    """The cells of a row, and the lines of each, as blocks of text."""
    bounds = [*row.parts, (row.end, row.letters, row.linked, row.element)]
    if row.parts[0][0] > row.start:
        bounds.insert(0, (row.start, 0, 0, row.element))
    for (start, letters, linked, element), (end, more, more_linked, _) in pairwise(bounds):
        yield Block("text", start, end, element, more - letters, more_linked - linked)
