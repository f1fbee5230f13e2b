"""What counts as a conversation: an array of chat messages, or a request body that holds one."""

from collections.abc import Mapping

TEXT_PARTS = frozenset({"text", "input_text", "output_text"})
_CALLS = ("tool_calls", "function_call")


def is_conversation(value: object) -> bool:
    """Whether parsed JSON is an array of messages or an object with such an array as `messages`."""
    return fault_in(value) is None


def fault_in(value: object) -> str | None:
    """None where parsed JSON is a conversation; else what keeps it from being one, with its place.

    A message is an object with a string `role` whose `content`, where it has any, is a string, null, or an array of
    strings and of objects. Some message must have a content or a call: records with just a role are not messages.
    """
    if isinstance(value, dict):
        found = _fault_in_messages(value.get("messages"))
        return None if found is None else f"messages{found}"
    return _fault_in_messages(value)


def _fault_in_messages(value: object) -> str | None:
    if not isinstance(value, list):
        return ": must be an array of messages"
    if not value:
        return ": must hold a message"
    for number, message in enumerate(value):
        fault = _fault_in_message(message)
        if fault is not None:
            return f"[{number}]{fault}"
    if not any("content" in message or has_calls(message) for message in value):
        return ": no message has a content"
    return None


def has_calls(message: Mapping[str, object]) -> bool:
    return any(message.get(key) for key in _CALLS)


def _fault_in_message(message: object) -> str | None:
    if not isinstance(message, dict):
        return ": must be an object"
    if not isinstance(message.get("role"), str) or not message["role"]:
        return ".role: must be a string that is not empty"
    content = message.get("content")
    if content is None or isinstance(content, str):
        return None
    if not isinstance(content, list):
        return ".content: must be a string, null or an array of parts"
    for number, part in enumerate(content):
        fault = _fault_in_part(part)
        if fault is not None:
            return f".content[{number}]{fault}"
    return None


def _fault_in_part(part: object) -> str | None:
    if isinstance(part, str):
        return None
    if not isinstance(part, dict):
        return ": must be an object"
    if part.get("type") in TEXT_PARTS and not isinstance(part.get("text"), str):
        return ".text: must be a string"
    return None
