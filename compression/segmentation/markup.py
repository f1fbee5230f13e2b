"""Tags, comments and character references of HTML, told apart in one pass over any text, however broken.

The standard library's parser costs the square of the text where a tag or a comment is not closed, lxml gives lines and
selectolax nothing of where an element stands; output is slices of the source, so every token has its place here.
"""

import re
from collections.abc import Iterator
from html.entities import html5
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
