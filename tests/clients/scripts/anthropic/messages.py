"""The `anthropic` package: messages plain and streamed, tools, tokens counted, models, errors by class."""

import json
import os

import anthropic
from anthropic import Anthropic

MODEL = os.environ["PITH_CHAT_MODEL"]
ASK = [{"role": "user", "content": "How is the weather in Oslo?"}]
TOOL = {
    "name": "weather",
    "description": "The weather of a city.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"enum": ["Oslo", "Bergen"]}},
        "required": ["city"],
    },
}
client = Anthropic()
plain = client.messages.create(model=MODEL, max_tokens=40, messages=ASK, system="Be brief.")
with client.messages.stream(model=MODEL, max_tokens=40, messages=ASK, system="Be brief.") as stream:
    streamed = "".join(stream.text_stream)
    final = stream.get_final_message()
events = [
    event.type for event in client.messages.create(model=MODEL, max_tokens=8, messages=ASK, stream=True)
]
called = client.messages.create(
    model=MODEL, max_tokens=200, messages=ASK, tools=[TOOL], tool_choice={"type": "any"}
)
call = next(block for block in called.content if block.type == "tool_use")
answered = client.messages.create(
    model=MODEL,
    max_tokens=20,
    tools=[TOOL],
    messages=[
        *ASK,
        {"role": "assistant", "content": called.content},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "Rain."}]},
    ],
)
counted = client.messages.count_tokens(model=MODEL, messages=ASK, system="Be brief.")


def raised(client: Anthropic, **given: object) -> list[object]:
    try:
        client.messages.create(**{"model": MODEL, "max_tokens": 4, "messages": ASK, **given})
    except anthropic.APIStatusError as error:
        return [type(error).__name__, error.status_code, error.body["error"]["type"], bool(error.request_id)]
    raise SystemExit("it did not fail")


print(
    json.dumps(
        {
            "text": plain.content[0].text,
            "stop": plain.stop_reason,
            "usage": [plain.usage.input_tokens, plain.usage.output_tokens],
            "streamed": streamed,
            "final": [final.usage.input_tokens, final.usage.output_tokens],
            "events": events,
            "call": [call.name, sorted(call.input), called.stop_reason],
            "answered": answered.role,
            "models": [model.id for model in client.models.list()],
            "counted": counted.input_tokens,
            "wrong key": raised(Anthropic(api_key="pith_wrong")),
            "wrong model": raised(client, model="claude-opus-9"),
            "wrong field": raised(client, max_tokens=-1),
        }
    )
)
