"""A conversation in Anthropic's blocks, as the chat messages that every model is given."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from models.errors import UnsupportedOption
from serve.dialects.anthropic.blocks import (
    ATTRIBUTION,
    DROPPED,
    Block,
    Loc,
    Part,
    blocks_of,
    dotted,
    name_of,
    parts_of,
    text_of,
    tool_call,
)
from serve.dialects.anthropic.message_body import AnthropicRequest

ERROR = "Error: "


@dataclass(slots=True)
class ChatTurns:
    """Chat messages, and the turn of the caller's that each was made of; -1 is the system prompt."""

    takes_images: bool
    messages: list[dict[str, Any]] = field(default_factory=list)
    origins: list[int] = field(default_factory=list)

    def parts_of(self, block: Block, loc: Loc) -> list[Part]:
        """What a block becomes. An image that the model cannot see is refused here, under its own name and place."""
        if block.get("type") == "image" and not self.takes_images:
            raise UnsupportedOption(dotted(loc), "this model does not accept blocks of type image")
        return parts_of(block, loc)

    def add(self, origin: int, **message: Any) -> None:
        self.messages.append(message)
        self.origins.append(origin)

    def say(self, origin: int, parts: Sequence[Part]) -> None:
        """A user's turn. Two that follow each other are one message: some templates know no other order."""
        if self.messages and self.messages[-1]["role"] == "user":
            last = self.messages[-1]
            last["content"] = _as_parts(last["content"])
            last["content"].extend(parts)
        else:
            self.add(origin, role="user", content=_content(parts))


def chat_turns(body: AnthropicRequest, *, takes_images: bool) -> ChatTurns:
    """The conversation, oldest first. Raises `InvalidField` or `UnsupportedOption` for a block that cannot be read."""
    turns = ChatTurns(takes_images)
    system = list(_instructions(body.system or "", ("system",)))
    for index, turn in enumerate(body.messages):
        loc: Loc = ("messages", index, "content")
        if turn.role == "assistant":
            _add_assistant(turns, index, turn.content, loc)
        elif turn.role == "user":
            _add_user(turns, index, turn.content, loc)
        elif turns.messages:
            # In its place: at the head it would change the prompt's beginning with each turn that has one.
            turns.say(index, [{"type": "text", "text": text} for text in _instructions(turn.content, loc)])
        else:
            system += _instructions(turn.content, loc)
    if system:
        turns.messages.insert(0, {"role": "system", "content": "\n".join(system)})
        turns.origins.insert(0, -1)
    return turns


def _instructions(content: str | list[dict[str, Any]], loc: Loc) -> Iterator[str]:
    for block, place in blocks_of(content, loc):
        if block.get("type") != "text":
            raise UnsupportedOption(dotted(place), "a system prompt holds text only")
        text = text_of(block, place)
        if text and not text.startswith(ATTRIBUTION):
            yield text


def _add_user(turns: ChatTurns, index: int, content: str | list[dict[str, Any]], loc: Loc) -> None:
    """The results of tools come first, each as a message: they answer what the model asked for."""
    parts: list[Part] = []
    for block, place in blocks_of(content, loc):
        if block.get("type") == "tool_result":
            parts += _add_result(turns, index, block, place)
        elif block.get("type") not in DROPPED:
            parts += turns.parts_of(block, place)
    if parts or not turns.messages or turns.origins[-1] != index:
        turns.say(index, parts)


def _add_result(turns: ChatTurns, index: int, block: Block, loc: Loc) -> list[Part]:
    """A tool's result; its images are returned, since a chat's tool says text only."""
    given = block.get("content") or ""
    found: list[Part] = []
    if isinstance(given, str):
        found = [{"type": "text", "text": given}]
    elif isinstance(given, list):
        for each, place in blocks_of(given, (*loc, "content")):
            found += turns.parts_of(each, place)
    texts = [part for part in found if part["type"] == "text"]
    if block.get("is_error") is True:
        texts = [{"type": "text", "text": ERROR}, *texts]
    said = "".join(part["text"] for part in texts) if block.get("is_error") is True else None
    identity = name_of(block, loc, "tool_use_id")
    turns.add(
        index, role="tool", tool_call_id=identity, content=said if said is not None else _content(texts)
    )
    return [part for part in found if part["type"] != "text"]


def _add_assistant(turns: ChatTurns, index: int, content: str | list[dict[str, Any]], loc: Loc) -> None:
    parts: list[Part] = []
    calls: list[dict[str, Any]] = []
    for block, place in blocks_of(content, loc):
        if block.get("type") == "tool_use":
            calls.append(tool_call(block, place))
        elif block.get("type") not in DROPPED:
            parts += turns.parts_of(block, place)
    made = {"tool_calls": calls} if calls else {}
    turns.add(index, role="assistant", content=_content(parts), **made)


def _content(parts: Sequence[Part]) -> str | list[Part]:
    """A text by itself where there is one and nothing is said of it."""
    if len(parts) == 1 and parts[0].keys() == {"type", "text"}:
        return str(parts[0]["text"])
    return list(parts) or ""


def _as_parts(content: str | list[Part]) -> list[Part]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return content
