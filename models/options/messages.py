"""Messages as an engine's chat template takes them: only properties we name, only roles and parts it knows.

Nothing is ever fetched: media come inline, since a URL fetched by the engine would let a caller reach all
that the engine can reach.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from models.catalog import Capabilities
from models.errors import InvalidField, UnsupportedOption
from models.options.tool_calls import calls_as_text, check_calls, engine_tool_calls

Loc = tuple[str | int, ...]

# What a role is called where the template does not support it.
_OTHER_NAMES = {"developer": "system", "function": "tool"}
_RESULTS = frozenset({"tool", "function"})
# Text fields next to the content, and how long they may be; the reasoning is part of the prompt.
_TEXTS: Mapping[str, int | None] = {
    "name": 256,
    "tool_call_id": 256,
    "reasoning": None,
    "reasoning_content": None,
}
MAX_NAMED_CHARS = 64
MAX_PARTS = 512
MAX_REQUEST_PARTS = 2048


def engine_messages(
    messages: Sequence[Mapping[str, Any]], *, capabilities: Capabilities
) -> tuple[dict[str, Any], ...]:
    """The conversation for the engine, in the same order; the given messages have the contract's types.

    Raises `UnsupportedOption` for a role, part or call that this model cannot take, named as in
    `messages[3].content[0]`, and `InvalidField` for one that is malformed.
    """
    _check_parts(messages)
    check_calls(messages)
    return tuple(_message(message, index, capabilities) for index, message in enumerate(messages))


def _check_parts(messages: Sequence[Mapping[str, Any]]) -> None:
    """Templates and engines look at each part several times, an empty one too."""
    left = MAX_REQUEST_PARTS
    for index, message in enumerate(messages):
        content = message.get("content")
        parts = len(content) if isinstance(content, list) else 0
        left -= parts
        if parts > MAX_PARTS or left < 0:
            text = f"at most {MAX_PARTS} parts in a message, and {MAX_REQUEST_PARTS} in all messages"
            raise InvalidField(("messages", index, "content"), text, kind="too_long")


def _message(message: Mapping[str, Any], index: int, capabilities: Capabilities) -> dict[str, Any]:
    loc: Loc = ("messages", index)
    if capabilities.tells_calls_as_text:
        message = _told_as_text(message, loc, capabilities)
    result: dict[str, Any] = {"role": _role(message["role"], loc, capabilities)}
    calls = engine_tool_calls(message, loc, capabilities=capabilities)
    content = message.get("content")
    if isinstance(content, list) and content:
        parts = enumerate(content)
        result["content"] = [
            _part(part, message["role"], (*loc, "content", at), capabilities) for at, part in parts
        ]
    elif content or not calls:
        # Templates join texts, so an absent content is an empty one unless there are calls instead.
        result["content"] = content or ""
    for name, most in _TEXTS.items():
        if message.get(name) is not None:
            result[name] = _text(message[name], (*loc, name), most)
    return {**result, "tool_calls": calls} if calls else result


def _told_as_text(message: Mapping[str, Any], loc: Loc, capabilities: Capabilities) -> Mapping[str, Any]:
    """The message with its calls at the end of its text; a result is said by the user, its content as it is."""
    calls = engine_tool_calls(message, loc, capabilities=capabilities)
    content = message.get("content")
    if message["role"] in _RESULTS:
        return {"role": "user", "content": content}
    if not calls:
        return message
    told = calls_as_text(calls)
    if isinstance(content, list):
        content = [*content, {"type": "text", "text": told}]
    else:
        content = f"{content}\n{told}" if content else told
    return {**message, "content": content, "tool_calls": None, "function_call": None}


def _role(role: str, loc: Loc, capabilities: Capabilities) -> str:
    for name in (role, _OTHER_NAMES.get(role)):
        if name in capabilities.template_roles:
            return str(name)
    raise UnsupportedOption(
        f"{_dotted(loc)}.role", f"this model's chat template does not support the role {role}"
    )


def _part(part: Mapping[str, Any], role: str, loc: Loc, capabilities: Capabilities) -> dict[str, Any]:
    kind = part.get("type")
    if not isinstance(kind, str):
        raise InvalidField((*loc, "type"), "a content part needs a type, such as text", kind="missing")
    if kind == "text":
        return {"type": "text", "text": _text(part.get("text"), (*loc, "text"))}
    if kind == "refusal" and role == "assistant":
        return {"type": "text", "text": _text(part.get("refusal"), (*loc, "refusal"))}
    if kind not in capabilities.media:
        message = f"this model does not accept content parts of type {kind[:MAX_NAMED_CHARS]}"
        raise UnsupportedOption(_dotted(loc), message)
    return _media_part(part, kind, loc)


def _media_part(part: Mapping[str, Any], kind: str, loc: Loc) -> dict[str, Any]:
    media = part.get(kind)
    if not isinstance(media, Mapping):
        raise InvalidField((*loc, kind), "must be an object", kind="dict_type")
    if kind == "input_audio":
        names = ("data", "format")
        return {"type": kind, kind: {name: _text(media.get(name), (*loc, kind, name)) for name in names}}
    url = _text(media.get("url"), (*loc, kind, "url"))
    if not url.startswith("data:"):
        raise UnsupportedOption(_dotted((*loc, kind, "url")), "nothing is fetched; send a data: URL")
    detail = {"detail": media["detail"]} if media.get("detail") in ("auto", "low", "high") else {}
    return {"type": kind, kind: {"url": url, **detail}}


def _text(value: Any, loc: Loc, most: int | None = None) -> str:
    if not isinstance(value, str):
        raise InvalidField(loc, "must be a string", kind="string_type")
    if most is not None and len(value) > most:
        raise InvalidField(loc, f"must have at most {most} characters", kind="string_too_long")
    return value


def _dotted(loc: Loc) -> str:
    """The path as OpenAI's errors write it: `messages[3].content[0]`."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in loc)
    return "".join(steps).removeprefix(".")
