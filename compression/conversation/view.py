"""The view of a conversation that is cut and scored: its texts decoded, and no white space between marks of JSON."""

import re

from compression.source.origin import Origin

_SPACE_OUTSIDE = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|(?P<space>[ \t\r\n]++)', re.DOTALL)
ESCAPE = re.compile(
    r"\\(?:u(?P<high>[dD][89abAB][0-9a-fA-F]{2})\\u(?P<low>[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|u(?P<code>[0-9a-fA-F]{4})|(?P<mark>.))",
    re.DOTALL,
)
_MARKS = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_LOST = "\ufffd"


class View:
    """Written from the input's start to its end; `text()` and `origin` are good when all has been added."""

    def __init__(self, raw: str) -> None:
        self.origin = Origin(raw)
        self._parts: list[str] = []
        self._escaped = 0
        self._skipped = 0
        self.length = 0

    def text(self) -> str:
        return "".join(self._parts)

    def add_structure(self, start: int, end: int) -> None:
        """JSON outside of decoded texts: strings as they are, white space between marks left out."""
        raw = self.origin.raw
        for found in _SPACE_OUTSIDE.finditer(raw, start, end):
            if found.group("space") is not None:
                self._add(raw[start : found.start()])
                self._skip(found.end() - found.start())
                start = found.end()
        self._add(raw[start:end])

    def add_text(self, start: int, end: int) -> tuple[int, int] | None:
        """The inside of a JSON string, decoded, between its quotes.

        Gives the place of the inside in the view; None where it has nothing but white space.
        """
        self._add('"')
        first = self.length
        text = self._decoded(start, end)
        self._add(text)
        last = self.length
        self.origin.texts.extend((first, last))
        self._add('"')
        return None if not text or text.isspace() else (first, last)

    def _decoded(self, start: int, end: int) -> str:
        """The text, with a note in the origin of every escape in it."""
        raw, escaped = self.origin.raw, self._escaped
        if raw.find("\\", start, end) < 0:
            return raw[start:end]
        pieces, places, sums = [], [], []
        # Where the text begins in the view, less what it has more in the input up to the next escape.
        shift = self.length - start + escaped
        for found in ESCAPE.finditer(raw, start, end):
            first, last = found.span()
            pieces.append(raw[start:first])
            pieces.append(_character(found))
            places.append(first + shift - escaped)
            escaped += last - first - 1
            sums.append(escaped)
            start = last
        pieces.append(raw[start:end])
        self.origin.escapes.extend(places)
        self.origin.escaped.extend(sums)
        self._escaped = escaped
        return "".join(pieces)

    def _add(self, piece: str) -> None:
        if piece:
            self._parts.append(piece)
            self.length += len(piece)

    def _skip(self, count: int) -> None:
        self._skipped += count
        self.origin.gaps.append(self.length)
        self.origin.skipped.append(self._skipped)


def _character(escape: re.Match[str]) -> str:
    if escape["mark"] is not None:
        return _MARKS.get(escape["mark"], escape["mark"])
    if escape["code"] is None:
        high, low = int(escape["high"], 16), int(escape["low"], 16)
        return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))
    code = int(escape["code"], 16)
    # Half of a pair is not a character: it could not be encoded.
    return _LOST if 0xD800 <= code <= 0xDFFF else chr(code)
