"""A chat's messages as an engine may take them: roles, parts, media and tool calls, and what is refused."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from models.catalog import Capabilities
from models.errors import InvalidField, UnsupportedOption

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


MAX_CALLS = 128
MAX_REQUEST_CALLS = 1024
# In the arguments of all calls together: the engine and its template parse them and serialise them again.
MAX_ARGUMENT_VALUES = 16_384
MAX_NAME_CHARS = 256
# The engine parses arguments by recursion, deep in its own stack.
MAX_ARGUMENT_DEPTH = 64
# Half a character, and an integer that Python reads from no text: JSON may hold either, and a body may hold neither.
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
MAX_DIGITS = 4300
_LONG_INTEGER = re.compile(rf"\d{{{MAX_DIGITS + 1}}}")


def check_calls(messages: Sequence[Mapping[str, Any]]) -> None:
    """Bound the calls of all messages together. Raises `InvalidField` for the first that is too much."""
    calls_left, values_left = MAX_REQUEST_CALLS, MAX_ARGUMENT_VALUES
    for index, message in enumerate(messages):
        calls = message.get("tool_calls") or (
            [message["function_call"]] if message.get("function_call") else []
        )
        if not calls:
            continue
        place: Loc = ("messages", index, "tool_calls" if message.get("tool_calls") else "function_call")
        calls_left -= len(calls)
        if calls_left < 0:
            raise InvalidField(
                place, f"all messages may have {MAX_REQUEST_CALLS} calls together", kind="too_long"
            )
        values_left -= sum(_argument_values(call, max(0, values_left)) for call in calls)
        if values_left < 0:
            message_text = f"the arguments of all calls may hold {MAX_ARGUMENT_VALUES} values together"
            raise InvalidField(place, message_text, kind="too_long")


def _argument_values(call: Any, enough: int) -> int:
    function = call.get("function", call) if isinstance(call, Mapping) else None
    arguments = function.get("arguments") if isinstance(function, Mapping) else None
    # Exact, since what is counted too high for one call would be missing for the next.
    return (
        exact_values_in(arguments.encode(), enough=enough) if isinstance(arguments, str) and arguments else 0
    )


def engine_tool_calls(
    message: Mapping[str, Any], loc: Loc, *, capabilities: Capabilities
) -> list[dict[str, Any]]:
    """The calls of one message, of its deprecated `function_call` too, with nothing beyond what they need.

    Raises `InvalidField` for a malformed call, `UnsupportedOption` where the template knows no tools or the
    call is of no function.
    """
    calls = message.get("tool_calls") or []
    legacy = message.get("function_call")
    if not calls and legacy is None:
        return []
    place = (*loc, "tool_calls" if calls else "function_call")
    if message["role"] != "assistant":
        raise InvalidField(place, "only a message of the assistant has calls")
    if not capabilities.tools and "tool" not in capabilities.template_roles:
        raise UnsupportedOption(f"messages[{loc[1]}].{place[-1]}", "this model does not call tools")
    if not calls:
        return [{"id": f"call_{loc[1]}", "type": "function", "function": _function(legacy, place)}]
    if len(calls) > MAX_CALLS:
        raise InvalidField(place, f"must have at most {MAX_CALLS} calls", kind="too_long")
    return [_call(call, (*place, index)) for index, call in enumerate(calls)]


def calls_as_text(calls: Sequence[Mapping[str, Any]]) -> str:
    """Checked calls as text, one a line, for a model whose template has no form for them."""
    functions = (call["function"] for call in calls)
    return "\n".join(
        f"Called {function['name']} with {function['arguments'] or '{}'}" for function in functions
    )


def _call(call: Mapping[str, Any], loc: Loc) -> dict[str, Any]:
    if call.get("type", "function") != "function":
        raise UnsupportedOption(f"messages[{loc[1]}].tool_calls[{loc[3]}].type", "only function is offered")
    return {
        "id": _name(call.get("id"), (*loc, "id")),
        "type": "function",
        "function": _function(call.get("function"), (*loc, "function")),
    }


def _function(function: Any, loc: Loc) -> dict[str, str]:
    if not isinstance(function, Mapping):
        raise InvalidField(loc, "must be an object", kind="dict_type")
    arguments = function.get("arguments", "")
    if not isinstance(arguments, str):
        raise InvalidField((*loc, "arguments"), "must be a string that holds JSON", kind="string_type")
    if _nesting(arguments) > MAX_ARGUMENT_DEPTH:
        message = f"must not be nested deeper than {MAX_ARGUMENT_DEPTH} levels"
        raise InvalidField((*loc, "arguments"), message, kind="json_too_deep")
    _check_values(arguments, (*loc, "arguments"))
    return {"name": _name(function.get("name"), (*loc, "name")), "arguments": arguments}


def _name(value: Any, loc: Loc) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME_CHARS:
        raise InvalidField(loc, f"must be a string of 1 to {MAX_NAME_CHARS} characters", kind="string_type")
    return value


def _check_values(arguments: str, loc: Loc) -> None:
    """Refuse what JSON can write and a prompt cannot hold. Malformed JSON passes: engines read nothing from it."""
    if _LONG_INTEGER.search(arguments):
        raise InvalidField(loc, f"must hold no number of more than {MAX_DIGITS} digits", kind="json_invalid")
    if not _SURROGATE.search(arguments):
        return
    try:
        value = json.loads(arguments)
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):04x}"
        message = f"holds {half}, which is half of a surrogate pair without the other half"
        raise InvalidField(loc, message, kind="string_unicode") from None
    except (ValueError, RecursionError):
        return


def _nesting(text: str) -> int:
    """The depth of the JSON in a text. Of malformed or shallow JSON, which engines tolerate, an upper bound."""
    opened = text.count("[") + text.count("{")
    if opened <= MAX_ARGUMENT_DEPTH:
        return opened
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return opened
    depth, level = 0, [value]
    while level:
        depth += 1
        inner = [
            item.values() if isinstance(item, dict) else item
            for item in level
            if isinstance(item, (dict, list))
        ]
        level = [member for members in inner for member in members]
    return depth


# The number of values in a JSON text, found before it is parsed: a million empty lists are seconds of work.
# At least one mark separates two values.
_MARKS = b",:[{"
_BYTES_OF_A_VALUE = 2


def values_in(text: bytes, *, enough: int) -> int:
    """The values and object keys in a JSON text, or an upper bound that is `enough` at most.

    Linear in the bytes, at the speed of searching. For a text that is not JSON the result is meaningless.
    """
    most = len(text) // _BYTES_OF_A_VALUE + 1
    if most > enough:
        most = min(most, _marks(text) + 1)
    return most if most <= enough else exact_values_in(text, enough=enough)


def exact_values_in(text: bytes, *, enough: int) -> int:
    """The values and object keys in a JSON text, an empty list counted as one that holds something; or more than
    `enough`, where there are."""
    return _marks(_outside_strings(text, enough=enough)) + 1


def _outside_strings(text: bytes, *, enough: int) -> bytes:
    """The text outside the strings, or as much of it as settles the question: each string is a value too."""
    # What is escaped ends no string.
    plain = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Each string is two splits: with one piece more than these, there are more than `enough` strings.
    pieces = plain.split(b'"', 2 * enough + 1)
    if len(pieces) > 2 * enough + 1:
        return b"," * enough
    return b"".join(pieces[::2])


def _marks(text: bytes) -> int:
    return len(text) - len(text.translate(None, _MARKS))
