"""Responses of the `openai` package: plain, streamed, parsed, with a function tool."""

import json
import os

import openai
from openai import OpenAI
from pydantic import BaseModel

MODEL = os.environ["PITH_CHAT_MODEL"]


class City(BaseModel):
    name: str
    is_capital: bool


TOOL = {
    "type": "function",
    "name": "weather",
    "description": "The weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}
client = OpenAI()
plain = client.responses.create(model=MODEL, input="Tell me about the river.", temperature=0)

raw, deltas = [], ""
for event in client.responses.create(
    model=MODEL, input="Tell me about the river.", temperature=0, stream=True
):
    raw.append(event.type)
    if event.type == "response.output_text.delta":
        deltas += event.delta

with client.responses.stream(model=MODEL, input="Tell me about the river.", temperature=0) as stream:
    for _ in stream:
        pass
    final = stream.get_final_response()

parsed = client.responses.parse(model=MODEL, input="Which city?", text_format=City)
called = client.responses.create(
    model=MODEL, input="How is the weather in Oslo?", tools=[TOOL], tool_choice="required"
)
call = next(item for item in called.output if item.type == "function_call")
answered = client.responses.create(
    model=MODEL,
    instructions="Be brief.",
    input=[
        {"role": "user", "content": "How is the weather in Oslo?"},
        call,
        {"type": "function_call_output", "call_id": call.call_id, "output": "Rain."},
    ],
    tools=[TOOL],
)
followed = client.responses.create(model=MODEL, input="And?", previous_response_id=plain.id)
try:
    client.responses.create(model=MODEL, input="And?", previous_response_id="resp_of_nobody")
    raise SystemExit("it did not fail")
except openai.APIStatusError as error:
    unknown = [type(error).__name__, error.message]

print(
    json.dumps(
        {
            "text": plain.output_text,
            "status": plain.status,
            "usage": plain.usage.model_dump(),
            "events": raw,
            "streamed": deltas,
            "final": final.output_text,
            "parsed": parsed.output_parsed.model_dump(),
            "call": [call.name, sorted(json.loads(call.arguments))],
            "answered": answered.status,
            "followed": [followed.previous_response_id == plain.id, followed.usage.input_tokens],
            "unknown": unknown,
        }
    )
)
