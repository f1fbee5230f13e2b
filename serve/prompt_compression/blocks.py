"""The parts of a conversation that may be compressed, each with its query.

Which texts are blocks and what their queries are follows from the conversation up to and with their own message, never
from what comes later: so a block comes out the same in each later turn, and the engine finds its prefix again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from compression.choosing.assembly import MARK
from compression.conversation.queries import QueryReader, Said, arguments_of, values_in
from compression.source.units import Slice
from models.errors import InvalidField
from serve.prompt_compression.options import WhatIsCompressed

Message = Mapping[str, Any]
TOOL_ROLES = frozenset({"tool", "function"})
NEVER = frozenset({"system", "developer"})


# Between texts that are compressed together.
JOINT = "\n\n"
MOST_JOINED_CHARS = 256 * 1024


@dataclass(frozen=True, slots=True)
class Block:
    """Texts of `messages[message]` that are compressed together: its whole content, where `parts` is empty, or
    neighbouring parts of it. Of twenty passages each would be left its share, and not what answers the query.

    `known` are values of a tool's result that the conversation has before it, in what is sent whole.
    """

    message: int
    parts: tuple[int, ...]
    texts: tuple[str, ...]
    query: str
    is_tool_result: bool = False
    known: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return JOINT.join(self.texts)

    def can_be_joined_by(self, other: Block) -> bool:
        """True if the next block of its message can be compressed with it. JSON stays by itself, to stay JSON."""
        return (
            bool(self.parts)
            and other.parts[0] == self.parts[-1] + 1
            and other.query == self.query
            and not any(map(looks_like_json, (self.texts[-1], other.texts[0])))
        )


@dataclass(frozen=True, slots=True)
class TextPart:
    """A text of one message. `mark` is what its caller says: compress it, leave it alone, or nothing."""

    index: int | None
    text: str
    mark: bool | None


def find_blocks(
    messages: Sequence[Message],
    scope: WhatIsCompressed,
    values_of: Callable[[str], Sequence[str]] = values_in,
) -> list[Block]:
    """In the order of the conversation. The messages have the contract's types; `values_of` is as in `Said`.

    Raises `InvalidField` for a mark that is not true or false.
    """
    if not any(_may_have_a_block(message, scope) for message in messages):
        # Most conversations have none and need not be read.
        return []
    blocks: list[Block] = []
    reader, said = QueryReader(), Said(values_of)
    scope_of = _scopes(messages, scope)
    for index, message in enumerate(messages):
        parts = list(_texts(message, index))
        found = list(_blocks_of(message, index, parts, scope_of(index), reader, said))
        blocks += _joined(found)
        reader.read(message, [part.text for part in parts])
        _read_whole(said, message, parts, found)
    return blocks


def _may_have_a_block(message: Message, scope: WhatIsCompressed) -> bool:
    content = message.get("content")
    if isinstance(content, list) and (scope == "all" or _is_marked(content)):
        return True
    return scope != "only_marked" and message["role"] in TOOL_ROLES


def _is_marked(parts: Sequence[Any]) -> bool:
    return any(isinstance(part, dict) and "compress" in part for part in parts)


def looks_like_json(text: str) -> bool:
    return text.lstrip().startswith(("{", "["))


def _blocks_of(
    message: Message,
    index: int,
    parts: Sequence[TextPart],
    scope: WhatIsCompressed,
    reader: QueryReader,
    said: Said,
) -> Iterator[Block]:
    for part in parts:
        if _is_block(message, part, parts, scope):
            beside = parts[-1].text if part is not parts[-1] else ""
            query = reader.query_of(message, part.text, beside)
            is_result = message["role"] in TOOL_ROLES
            known = said.known_in(part.text) if is_result else ()
            at = () if part.index is None else (part.index,)
            yield Block(index, at, (part.text,), query, is_result, known)


def _read_whole(said: Said, message: Message, parts: Sequence[TextPart], blocks: Sequence[Block]) -> None:
    """Read what is sent whole of a message: texts that are no blocks, and arguments of its calls. A tool's result is
    not read: that it is no block is an exception."""
    if message["role"] in TOOL_ROLES:
        return
    compressed = {block.parts for block in blocks}
    for part in parts:
        if (() if part.index is None else (part.index,)) not in compressed:
            said.read(part.text)
    for arguments in arguments_of(message):
        said.read(arguments)


def _joined(blocks: Iterable[Block]) -> list[Block]:
    """Neighbours as one block, in one pass: a message may have thousands of parts."""
    groups: list[list[Block]] = []
    chars = 0
    for block in blocks:
        chars += len(block.texts[0])
        if groups and chars <= MOST_JOINED_CHARS and groups[-1][-1].can_be_joined_by(block):
            groups[-1].append(block)
        else:
            groups.append([block])
            chars = len(block.texts[0])
    return [group[0] if len(group) == 1 else _one_of(group) for group in groups]


def _one_of(group: Sequence[Block]) -> Block:
    parts = tuple(part for block in group for part in block.parts)
    known = tuple(sorted({text for block in group for text in block.known}))
    return replace(group[0], parts=parts, texts=tuple(block.texts[0] for block in group), known=known)


def _scopes(messages: Sequence[Message], scope: WhatIsCompressed) -> Callable[[int], WhatIsCompressed]:
    """By a message's position: with `all_but_newest` the last user's message is one as with `all`."""
    if scope != "all_but_newest":
        return lambda index: scope
    users = [index for index, message in enumerate(messages) if message["role"] == "user"]
    newest = users[-1] if users else -1
    return lambda index: "all" if index == newest else "all_but_newest"


def has_marks(messages: Sequence[Message]) -> bool:
    """True if a caller has marked anything to be compressed. Raises `InvalidField` as `find_blocks` does.

    Asked of every request, so it looks closer at marked parts only.
    """
    return any(
        text.mark
        for index, message in enumerate(messages)
        if isinstance(content := message.get("content"), list) and _is_marked(content)
        for text in _texts(message, index)
    )


def _texts(message: Message, index: int) -> Iterator[TextPart]:
    content = message.get("content")
    if isinstance(content, str):
        yield TextPart(None, content, None)
    elif isinstance(content, list):
        for at, part in enumerate(content):
            # In messages that are not for our own models, a part may be anything.
            if not isinstance(part, Mapping):
                continue
            mark = _mark(part, ("messages", index, "content", at, "compress"))
            if part.get("type") == "text" and isinstance(part.get("text"), str):
                yield TextPart(at, part["text"], mark)


def _mark(part: Mapping[str, Any], loc: tuple[str | int, ...]) -> bool | None:
    mark = part.get("compress")
    if mark is not None and not isinstance(mark, bool):
        raise InvalidField(loc, "must be true or false", kind="bool_type")
    return mark


def _is_block(message: Message, part: TextPart, parts: Sequence[TextPart], scope: WhatIsCompressed) -> bool:
    role = message["role"]
    if role in NEVER or part.mark is False or not part.text:
        return False
    if part.mark:
        return True
    if scope == "only_marked":
        return False
    if role in TOOL_ROLES:
        return True
    if role != "user":
        return False
    # The last text of every user's message: it was the conversation's last when it was first sent.
    return scope == "all_but_newest" or (scope == "all" and part is not parts[-1])


def cut(texts: Sequence[str], kept: Sequence[Slice], *, mark_gaps: bool) -> tuple[str, ...]:
    """For each of the texts, what the slices `kept` of them all, joined, have of it; empty where that is nothing.

    With `mark_gaps` a mark is put between two pieces of a text that are not neighbours.
    """
    outputs = []
    start = first = 0
    for text in texts:
        end = start + len(text)
        # Slices stand in order. Going through all of them for each text would take a large block seconds.
        while first < len(kept) and kept[first].end <= start:
            first += 1
        outputs.append(_written(text, start, _within(kept, first, start, end), mark_gaps=mark_gaps))
        start = end + len(JOINT)
    return tuple(outputs)


def _within(kept: Sequence[Slice], first: int, start: int, end: int) -> Iterator[Slice]:
    """The slices from `first` on, cut to what they have between `start` and `end`."""
    for at in range(first, len(kept)):
        piece = kept[at]
        if piece.start >= end:
            return
        if piece.start < piece.end:
            yield Slice(max(piece.start, start), min(piece.end, end))


def _written(text: str, start: int, pieces: Iterable[Slice], *, mark_gaps: bool) -> str:
    written: list[str] = []
    before = None
    for piece in pieces:
        left_out = "" if before is None else text[before - start : piece.start - start]
        if mark_gaps and left_out.strip():
            _strip_end(written)
            written.append(f" {MARK} ")
        written.append(text[piece.start - start : piece.end - start])
        before = piece.end
    return "".join(written)


def _strip_end(written: list[str]) -> None:
    while written and not written[-1].strip():
        written.pop()
    if written:
        written[-1] = written[-1].rstrip()
