"""Haystack's OpenAI components: generators, plain and streamed, with a tool."""

import json
import os

from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import tool

MODEL, URL = os.environ["PITH_CHAT_MODEL"], os.environ["OPENAI_BASE_URL"]
ASK = [ChatMessage.from_user("How is the weather in Oslo?")]


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    return "Rain."


chunks = []
plain = OpenAIChatGenerator(model=MODEL, api_base_url=URL).run(ASK)["replies"][0]
streamed = OpenAIChatGenerator(model=MODEL, api_base_url=URL, streaming_callback=chunks.append).run(ASK)
forced = OpenAIChatGenerator(
    model=MODEL, api_base_url=URL, tools=[weather], generation_kwargs={"tool_choice": "required"}
).run(ASK)["replies"][0]
call = forced.tool_calls[0]
print(
    json.dumps(
        {
            "text": plain.text,
            "usage": plain.meta["usage"]["total_tokens"],
            "chunks": len(chunks),
            "streamed": streamed["replies"][0].text,
            "call": [call.tool_name, sorted(call.arguments)],
        }
    )
)
