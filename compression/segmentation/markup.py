"""Tags, comments and character references of HTML, told apart in one pass over any text, however broken; elements by
what they are for; and what a page is read into, its elements that hold blocks, and its blocks.

The standard library's parser costs the square of the text where a tag or a comment is not closed, lxml gives lines and
selectolax nothing of where an element stands; output is slices of the source, so every token has its place here.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.entities import html5
from itertools import pairwise
from typing import Literal, NamedTuple

# No alternative runs past the next `<`, and tokens begin at one: the work grows with the text.
_TOKEN = re.compile(
    r"<(?P<close>\\?/)?(?P<name>[a-zA-Z][a-zA-Z0-9:_-]{0,40}+)"
    r"(?P<attributes>(?:[\s/\\](?:[^<>\"']++|\"[^\"<]*+\"|'[^'<]*+'|[\"'])*+)?)>"
    r"|(?P<comment><!--)|(?P<other><[!?][^<>]{0,2000}>)"
    r"|&(?P<reference>#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,31});"
)
# Elements whose content is no text of the page, and has no tags of its own.
OPAQUE = frozenset({"script", "style", "svg", "iframe", "object", "canvas", "textarea", "noembed", "xmp"})

TokenKind = Literal["open", "close", "nothing", "reference"]


class Token(NamedTuple):
    """`name` is in lower case; of a reference it is the character that it stands for."""

    kind: TokenKind
    start: int
    end: int
    name: str = ""
    attributes: str = ""


def tokens(source: str) -> Iterator[Token]:
    """What of `source` is not text, in order. A comment, and an element without text of its own, is one token."""
    at = 0
    ends: dict[str, re.Pattern[str] | None] = {}
    while (found := _TOKEN.search(source, at)) is not None:
        at = found.end()
        if found["reference"] is not None:
            character = character_of(found["reference"])
            if character:
                yield Token("reference", found.start(), at, character)
            continue
        if found["name"] is None:
            if found["comment"] is not None:
                at = _comment_end(source, at, ends)
            yield Token("nothing", found.start(), at)
            continue
        name = found["name"].lower()
        if name in OPAQUE and found["close"] is None and not found["attributes"].endswith("/"):
            at = _element_end(source, at, name, ends)
            yield Token("nothing", found.start(), at, name)
            continue
        yield Token("close" if found["close"] else "open", found.start(), at, name, found["attributes"])


_COMMENT_END = re.compile(r"-->")


def _comment_end(source: str, at: int, ends: dict[str, re.Pattern[str] | None]) -> int:
    """A comment that does not end is its mark alone: what follows may be all of the page."""
    pattern = ends.setdefault("", _COMMENT_END)
    found = pattern.search(source, at) if pattern else None
    if found is None:
        ends[""] = None
    return at if found is None else found.end()


def _element_end(source: str, at: int, name: str, ends: dict[str, re.Pattern[str] | None]) -> int:
    pattern = ends.setdefault(name, re.compile(rf"<\\?/{name}\s*+>", re.IGNORECASE))
    found = pattern.search(source, at) if pattern else None
    if found is None:
        ends[name] = None
    return at if found is None else found.end()


def character_of(reference: str) -> str:
    """The character that `amp` or `#8217` stands for; "" where it is none, or more than one."""
    if reference[0] != "#":
        found = html5.get(reference + ";", "")
        return found if len(found) == 1 else ""
    code = int(reference[2:], 16) if reference[1] in "xX" else int(reference[1:])
    is_character = 0 < code < 0x110000 and not 0xD800 <= code < 0xE000
    return chr(code) if is_character else ""


_ATTRIBUTE = re.compile(
    r"([^\s=\"'/\\<>]{1,80})(?:\s{0,8}=\s{0,8}\\?(?:\"([^\"]*+)\"|'([^']*+)'|([^\s\"'>]++)))?"
)


def attributes_of(text: str) -> dict[str, str]:
    """Attributes by name, in lower case; those without a value have ""."""
    return {
        found[1].lower(): (found[2] or found[3] or found[4] or "").rstrip("\\").strip().lower()
        for found in _ATTRIBUTE.finditer(text)
    }


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
