"""A function tool of the `openai` package: called because it must be, its result fed back, parsed, streamed."""

import json
import os
from typing import Literal

import openai
from openai import OpenAI
from pydantic import BaseModel

MODEL = os.environ["PITH_CHAT_MODEL"]
ASK = [{"role": "user", "content": "How is the weather in Oslo?"}]


class Weather(BaseModel):
    """The weather of a city. What may be said is bounded, since a tiny model ends no text by itself."""

    city: Literal["Oslo", "Turin"]
    days: Literal[1, 2, 3]


TOOL = openai.pydantic_function_tool(Weather)
client = OpenAI()
called = client.chat.completions.create(model=MODEL, messages=ASK, tools=[TOOL], tool_choice="required")
message = called.choices[0].message
call = message.tool_calls[0]
result = {"role": "tool", "tool_call_id": call.id, "content": "Rain."}
answer = client.chat.completions.create(
    model=MODEL, messages=[*ASK, message, result], tools=[TOOL], max_tokens=32
)

parsed = client.chat.completions.parse(model=MODEL, messages=ASK, tools=[TOOL], tool_choice="required")

named = {"type": "function", "function": {"name": "Weather"}}
with client.chat.completions.stream(model=MODEL, messages=ASK, tools=[TOOL], tool_choice=named) as stream:
    pieces = [event for event in stream if event.type == "tool_calls.function.arguments.delta"]
    streamed = stream.get_final_completion().choices[0].message.tool_calls[0]

print(
    json.dumps(
        {
            "name": call.function.name,
            "arguments": Weather.model_validate_json(call.function.arguments).model_dump(),
            "finish": called.choices[0].finish_reason,
            "answer": answer.choices[0].finish_reason,
            "parsed": parsed.choices[0].message.tool_calls[0].function.parsed_arguments.model_dump(),
            "pieces": len(pieces),
            "streamed": streamed.function.parsed_arguments.model_dump(),
        }
    )
)
