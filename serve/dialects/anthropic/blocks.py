"""One block of a turn, as part of a chat message: each kind that a prompt can hold, and a clear no to the others."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from models.errors import InvalidField, UnsupportedOption

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
