"""Chat messages in a request: checked, and written as the JSON that is compressed, counted and charged."""

import json
from typing import Annotated, Any

from pydantic import Field, PlainValidator
from pydantic_core import PydanticCustomError

from compression.conversation import fault_in

EXAMPLE: list[dict[str, Any]] = [
    {"role": "user", "content": "Is order 4417 on its way?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "order", "arguments": '{"id": 4417}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "Order 4417 left on 3 May. It has two parcels."},
]


def canonical(messages: Any) -> str:
    """The messages as JSON without white space, every field in its original order.

    Raises `PydanticCustomError` if it is not a conversation, and for numbers that JSON does not have.
    """
    fault = fault_in(messages) if isinstance(messages, list) else ": must be an array of messages"
    if fault is not None:
        raise PydanticCustomError("invalid_messages", "{fault}", {"fault": f"messages{fault}"})
    try:
        return json.dumps(messages, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        raise PydanticCustomError(
            "invalid_messages", "messages: contains a number that is too large"
        ) from None


# Validated, it is the text: the messages themselves are wanted no more.
MessagesText = Annotated[
    str,
    PlainValidator(
        canonical,
        json_schema_input_type=Annotated[list[dict[str, Any]], Field(min_length=1, examples=[EXAMPLE])],
    ),
]
