"""Chat completions of the `openai` package: plain, streamed as its README does, through its helpers, async."""

import asyncio
import json
import os

from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel, Field

MODEL = os.environ["PITH_CHAT_MODEL"]
ASK = [{"role": "user", "content": "Tell me about the river."}]


class City(BaseModel):
    # The tiny model may babble for thousands of tokens before it ends a string.
    name: str = Field(max_length=20)
    is_capital: bool


client = OpenAI()
plain = client.chat.completions.create(model=MODEL, messages=ASK, temperature=0)

streamed = ""
for chunk in client.chat.completions.create(model=MODEL, messages=ASK, temperature=0, stream=True):
    streamed += chunk.choices[0].delta.content or ""

with client.chat.completions.stream(model=MODEL, messages=ASK, temperature=0) as stream:
    kinds = sorted({event.type for event in stream})
    final = stream.get_final_completion()

usage = [
    chunk.usage
    for chunk in client.chat.completions.create(
        model=MODEL, messages=ASK, stream=True, stream_options={"include_usage": True}
    )
]

parsed = client.chat.completions.parse(model=MODEL, messages=ASK, response_format=City)


async def concurrently() -> list[str]:
    async with AsyncOpenAI() as asynchronous:
        replies = [
            asynchronous.chat.completions.create(model=MODEL, messages=ASK, temperature=0) for _ in range(3)
        ]
        return [reply.choices[0].message.content for reply in await asyncio.gather(*replies)]


print(
    json.dumps(
        {
            "text": plain.choices[0].message.content,
            "finish": plain.choices[0].finish_reason,
            "usage": plain.usage.model_dump(),
            "streamed": streamed,
            "final": final.choices[0].message.content,
            "kinds": kinds,
            "usage chunks": [each.total_tokens for each in usage if each],
            "parsed": parsed.choices[0].message.parsed.model_dump(),
            "concurrent": asyncio.run(concurrently()),
        }
    )
)
