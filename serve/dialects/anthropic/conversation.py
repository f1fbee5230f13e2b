"""A conversation in Anthropic's blocks, with its tools, as the chat that every model is given."""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from models.errors import InvalidField, UnsupportedOption
from serve.dialects.anthropic.request import AnthropicRequest, AnthropicToolChoice, AnthropicTurn

Loc = tuple[str | int, ...]
Block = Mapping[str, Any]
Part = dict[str, Any]

# What a client puts there to be counted by: it differs with each request, and would keep the prefix cache from hitting.
ATTRIBUTION = "x-anthropic-billing-header"
MAX_NAME_CHARS = 256
MAX_NAMED_CHARS = 64
# What the model thought before is no part of its next prompt.
DROPPED = frozenset({"thinking", "redacted_thinking"})


def blocks_of(content: str | list[dict[str, Any]], loc: Loc) -> Iterator[tuple[Block, Loc]]:
    """The blocks of a content, each with its place. Raises `InvalidField` for what is no object with a type."""
    if isinstance(content, str):
        yield {"type": "text", "text": content}, loc
        return
    for index, block in enumerate(content):
        place = (*loc, index)
        if not isinstance(block, Mapping):
            raise InvalidField(place, "must be an object", kind="dict_type")
        text_of(block, place, "type")
        yield block, place


def text_of(block: Block, loc: Loc, name: str = "text") -> str:
    value = block.get(name)
    if not isinstance(value, str):
        raise InvalidField((*loc, name), "must be a string", kind="string_type")
    return value


def name_of(block: Block, loc: Loc, name: str) -> str:
    value = block.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME_CHARS:
        raise InvalidField((*loc, name), f"must be a string of 1 to {MAX_NAME_CHARS} characters")
    return value


def parts_of(block: Block, loc: Loc) -> list[Part]:
    """The parts of a chat message that a block becomes. Raises `InvalidField`, or `UnsupportedOption` for a kind that
    no prompt can hold."""
    kind = block.get("type")
    if kind == "text":
        return [_text_part(block, loc)]
    if kind == "image":
        return [{"type": "image_url", "image_url": {"url": _url(_source(block, loc), (*loc, "source"))}}]
    if kind == "document":
        return [{"type": "text", "text": _document(block, loc)}]
    if kind == "search_result":
        told = [text_of(block, loc, name) for name in ("title", "source") if block.get(name)]
        return [
            {"type": "text", "text": "\n".join([*told, *_texts(block.get("content"), (*loc, "content"))])}
        ]
    if kind == "tool_reference":
        return [{"type": "text", "text": f"The tool {name_of(block, loc, 'tool_name')} can be used now."}]
    raise UnsupportedOption(dotted(loc), f"blocks of type {str(kind)[:MAX_NAMED_CHARS]} are not offered here")


def _text_part(block: Block, loc: Loc) -> Part:
    marked = {"compress": block["compress"]} if "compress" in block else {}
    return {"type": "text", "text": text_of(block, loc), **marked}


def _texts(content: Any, loc: Loc) -> list[str]:
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        raise InvalidField(loc, "must be a string or a list of blocks")
    return [text_of(each, (*loc, index)) for index, each in enumerate(content) if isinstance(each, Mapping)]


def _source(block: Block, loc: Loc) -> Block:
    source = block.get("source")
    if not isinstance(source, Mapping):
        raise InvalidField((*loc, "source"), "must be an object", kind="dict_type")
    return source


def _url(source: Block, loc: Loc) -> str:
    if source.get("type") == "url":
        if not (url := text_of(source, loc, "url")).startswith("data:"):
            raise UnsupportedOption(dotted((*loc, "url")), "nothing is fetched; send the data as base64")
        return url
    if source.get("type") != "base64":
        raise UnsupportedOption(dotted((*loc, "type")), "send the data as base64")
    return f"data:{name_of(source, loc, 'media_type')};base64,{text_of(source, loc, 'data')}"


def _document(block: Block, loc: Loc) -> str:
    source, place = _source(block, loc), (*loc, "source")
    if source.get("type") == "text":
        texts = [text_of(source, place, "data")]
    elif source.get("type") == "content":
        texts = _texts(source.get("content"), (*place, "content"))
    else:
        raise UnsupportedOption(
            dotted((*place, "type")), "only documents of text are offered: text or content"
        )
    title = [text_of(block, loc, "title")] if block.get("title") else []
    return "\n".join([*title, *texts])


def tool_call(block: Block, loc: Loc) -> dict[str, Any]:
    """A call that the model has made, in a chat's words."""
    given = block.get("input", {})
    if not isinstance(given, Mapping):
        raise InvalidField((*loc, "input"), "must be an object", kind="dict_type")
    arguments = json.dumps(given, ensure_ascii=False, separators=(",", ":"))
    function = {"name": name_of(block, loc, "name"), "arguments": arguments}
    return {"id": name_of(block, loc, "id"), "type": "function", "function": function}


def dotted(loc: Loc) -> str:
    """The path as Anthropic's errors write it: `messages.3.content.0`."""
    return ".".join(map(str, loc))


_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def tool_options(body: AnthropicRequest) -> dict[str, Any]:
    """`tools`, `tool_choice` and `parallel_tool_calls` of a chat; empty without tools. Raises `InvalidField`, and
    `UnsupportedOption` for a tool that Anthropic's servers run, or that its models know without a schema."""
    options: dict[str, Any] = {}
    choice = body.tool_choice
    if body.tools:
        options["tools"] = [_function(tool, ("tools", at)) for at, tool in _loaded(body)]
    if choice is not None:
        options["tool_choice"] = _choice(choice)
        if choice.disable_parallel_tool_use:
            options["parallel_tool_calls"] = False
    return options


def _choice(choice: AnthropicToolChoice) -> str | dict[str, Any]:
    if choice.type == "tool":
        return {"type": "function", "function": {"name": choice.name}}
    return _CHOICES[choice.type]


def _loaded(body: AnthropicRequest) -> list[tuple[int, dict[str, Any]]]:
    """The tools without those that are to be kept back until the conversation has found them."""
    tools = list(enumerate(body.tools or ()))
    if not any(tool.get("defer_loading") is True for _, tool in tools):
        return tools
    found = set(_referred(body.messages))
    if body.tool_choice is not None:
        found.add(body.tool_choice.name)
    kept = [(at, tool) for at, tool in tools if tool.get("defer_loading") is not True or _is_in(found, tool)]
    return kept or tools


def _is_in(names: Collection[Any], tool: Mapping[str, Any]) -> bool:
    name = tool.get("name")
    return isinstance(name, str) and name in names


def _referred(messages: Iterable[AnthropicTurn]) -> Iterator[Any]:
    for turn in messages:
        for block in turn.content if isinstance(turn.content, list) else ():
            inner = block.get("content") if block.get("type") == "tool_result" else None
            for each in inner if isinstance(inner, list) else ():
                name = each.get("tool_name") if isinstance(each, Mapping) else None
                if isinstance(name, str) and each.get("type") == "tool_reference":
                    yield name


def _function(tool: Mapping[str, Any], loc: Loc) -> dict[str, Any]:
    kind = tool.get("type", "custom")
    if kind not in ("custom", None):
        reason = "only tools of one's own, with an input_schema, are offered"
        raise UnsupportedOption(f"tools.{loc[1]}.type", f"{str(kind)[:MAX_NAMED_CHARS]}: {reason}")
    name, schema = text_of(tool, loc, "name"), tool.get("input_schema")
    if not _NAME.fullmatch(name):
        raise InvalidField((*loc, "name"), "must be 1 to 128 letters, digits, _ or -")
    if not isinstance(schema, dict):
        raise InvalidField((*loc, "input_schema"), "must be an object", kind="dict_type")
    function: dict[str, Any] = {"name": name, "parameters": {"type": "object", **schema}}
    if tool.get("description") is not None:
        function["description"] = text_of(tool, loc, "description")
    return {"type": "function", "function": function}


ERROR = "Error: "


@dataclass(slots=True)
class ChatTurns:
    """Chat messages, and the turn of the caller's that each was made of; -1 is the system prompt."""

    takes_images: bool
    messages: list[dict[str, Any]] = field(default_factory=list)
    origins: list[int] = field(default_factory=list)

    def parts_of(self, block: Block, loc: Loc) -> list[Part]:
        """A block as parts. An image that the model cannot see is refused here, under its own name and place."""
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
