"""The tool calls of earlier turns, checked for what would break a chat template or the engine's parser."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from models.catalog import Capabilities
from models.errors import InvalidField, UnsupportedOption
from models.options.json_size import exact_values_in

Loc = tuple[str | int, ...]

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
    """What a model reads of its checked calls where its template has no form for them: one a line."""
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
