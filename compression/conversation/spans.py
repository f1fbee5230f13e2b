"""Kept spans of a conversation by message: its messages of which anything was kept, and spans of their texts."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from compression.conversation.layout import ESCAPE
from compression.conversation.messages import Text, read_conversation
from compression.source.units import Slice, kept_parts, merged


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
        KeptMessage(index, tuple(_kept_text(source, text, kept) for text in message.texts))
        for index, message in enumerate(conversation.messages)
        if kept_parts(kept, message.start, message.end)
    )


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
