"""The view of a conversation, with its texts decoded; its messages, texts and calls in it, and kept spans of each."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from compression.conversation.messages import (
    Conversation,
    Inside,
    Message,
    Part,
    Parts,
    Text,
    key_of,
    read_content,
    read_conversation,
    texts_in,
)
from compression.source.json_tree import Node, json_value
from compression.source.origin import Origin
from compression.source.units import Slice, kept_parts, merged

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


Span = tuple[int, int]


@dataclass(slots=True)
class Layout:
    """The whole conversation in the view. `body`, `array` are what opens and closes them; `body` may be missing."""

    source: str
    origin: Origin
    messages: list[Part]
    array: tuple[Span, Span]
    body: tuple[Span, Span] | None
    before: list[Part] = field(default_factory=list)
    after: list[Part] = field(default_factory=list)


def lay_out(conversation: Conversation) -> Layout:
    return _Layer(conversation).lay_out()


class _Layer:
    """One pass over the input, from its start to its end."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._view = View(conversation.raw)
        self._at = 0

    def lay_out(self) -> Layout:
        array, body = self._conversation.array, self._conversation.body
        opening = self._span(body.start, _inside(body)[0]) if body else None
        before = [self._member(node) for node in self._others(body, until=array.start)]
        opens = self._span(array.start, _inside(array)[0])
        messages = [self._part(message) for message in self._conversation.messages]
        closes = self._span(_inside(array)[1], array.end)
        after = [self._member(node) for node in self._others(body, since=array.end)]
        closing = self._span(_inside(body)[1], body.end) if body else None
        self._to(len(self._conversation.raw))
        around = (opening, closing) if opening and closing else None
        return Layout(self._view.text(), self._view.origin, messages, (opens, closes), around, before, after)

    def _others(self, body: Node | None, since: int = 0, until: int | None = None) -> Iterator[Node]:
        for node in body.children if body else ():
            if node.start >= since and (until is None or node.start < until):
                yield node

    def _to(self, raw: int) -> int:
        """Add what comes before `raw`; the place in the view."""
        self._view.add_structure(self._at, raw)
        self._at = raw
        return self._view.length

    def _span(self, start: int, end: int) -> Span:
        return self._to(start), self._to(end)

    def _part(self, part: Message | Part) -> Part:
        start = self._to(part.start)
        inside = tuple(found for item in part.inside if (found := self._item(item)) is not None)
        return Part(start, self._to(part.end), inside, isinstance(part, Part) and part.is_text)

    def _item(self, item: Inside) -> Inside | None:
        """None for a text of nothing but white space."""
        if isinstance(item, Parts):
            start = self._to(item.start)
            parts = tuple(map(self._part, item.parts))
            return Parts(start, self._to(item.end), parts)
        if not item.is_quoted:
            return Text(*self._span(item.start, item.end), is_call=item.is_call)
        self._to(item.start - 1)
        span = self._view.add_text(item.start, item.end)
        self._at = item.end + 1
        return None if span is None else Text(*span, is_call=item.is_call)

    def _member(self, node: Node) -> Part:
        """A member of the body beside the messages: a system prompt has texts, an array its elements."""
        raw = self._conversation.raw
        if key_of(node) == "system":
            found = json_value(raw, node.value) if node.inside else None
            value = found[0] if found else raw[node.value : node.end]
            if isinstance(value, list) or raw[node.value] == '"':
                message = Message(node.start, node.end, "")
                read_content(message, raw, node, value)
                return self._part(message)
        start = self._to(node.start)
        elements: tuple[Span, ...] = ()
        if node.inside is not None and raw[node.value] == "[":
            elements = tuple(self._span(child.start, child.end) for child in node.children)
        return Part(start, self._to(node.end), elements=elements)


def _inside(node: Node) -> Span:
    assert node.inside is not None
    return node.inside


@dataclass(frozen=True, slots=True)
class KeptText:
    """Kept spans of one text. `path`: () for a content that is a string, (i,) for its part i, (i, j) for text j in
    the result that is its part i; parts are counted as they came in, and one without spans went. `spans` are in code
    points of the text itself, which has no escapes.
    """

    path: tuple[int, ...]
    spans: tuple[Slice, ...]


@dataclass(frozen=True, slots=True)
class KeptMessage:
    """A message of which anything was kept: its place among the messages that came in, and its texts in order."""

    index: int
    texts: tuple[KeptText, ...]


def spans_by_message(source: str, kept: Sequence[Slice]) -> tuple[KeptMessage, ...]:
    """The messages of the conversation `source` that are left where `kept`, in source order, are its slices.

    Raises `ValueError` where `source` is not a conversation.
    """
    conversation = read_conversation(source)
    if conversation is None:
        raise ValueError("source: is not a conversation")
    return tuple(
        KeptMessage(index, tuple(_kept_texts(source, message, kept)))
        for index, message in enumerate(conversation.messages)
        if kept_parts(kept, message.start, message.end)
    )


def _kept_texts(source: str, message: Message, kept: Sequence[Slice]) -> Iterator[KeptText]:
    for text in texts_in(message.inside):
        if not text.is_call:
            yield _kept_text(source, text, kept)


def _kept_text(source: str, text: Text, kept: Sequence[Slice]) -> KeptText:
    parts = kept_parts(kept, text.start, text.end)
    if not parts:
        return KeptText(text.path, ())
    escapes = [found.span() for found in ESCAPE.finditer(source, text.start, text.end)]
    ends = [end for _, end in escapes]
    longer = list(accumulate((end - start - 1 for start, end in escapes), initial=0))

    def decoded(at: int) -> int:
        return at - text.start - longer[bisect_right(ends, at)]

    return KeptText(text.path, tuple(merged([Slice(decoded(start), decoded(end)) for start, end in parts])))
