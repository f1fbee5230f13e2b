"""pydantic-ai at its default: text, an object (a tool call), a tool of its own, streamed."""

import asyncio
import json
import os

from pydantic import BaseModel
from pydantic_ai import Agent

MODEL = f"openai:{os.environ['PITH_CHAT_MODEL']}"


class City(BaseModel):
    name: str
    is_capital: bool


async def main() -> dict[str, object]:
    plain = await Agent(MODEL).run("Hello.")
    typed = await Agent(MODEL, output_type=City).run("Which city?")
    agent = Agent(MODEL)

    @agent.tool_plain
    def weather(city: str) -> str:
        """The weather of a city."""
        return "Rain."

    offered = await agent.run("How is the weather in Oslo?")
    async with agent.run_stream("How is the weather in Oslo?") as stream:
        streamed = await stream.get_output()
    return {
        "model": type(Agent(MODEL).model).__name__,
        "text": plain.output,
        "tokens": plain.usage.total_tokens,
        "typed": typed.output.model_dump(),
        "offered": type(offered.output).__name__,
        "streamed": type(streamed).__name__,
    }


print(json.dumps(asyncio.run(main())))
