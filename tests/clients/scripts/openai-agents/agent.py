"""An agent of the OpenAI Agents SDK on its default, the Responses API, with a function tool that it must call."""

import asyncio
import json
import os

from agents import Agent, ModelSettings, Runner, function_tool, set_tracing_disabled
from pydantic import BaseModel

MODEL = os.environ["PITH_CHAT_MODEL"]
# It would send traces to OpenAI itself.
set_tracing_disabled(True)
cities: list[str] = []


class City(BaseModel):
    name: str


@function_tool
def weather(city: str) -> str:
    """The weather of a city."""
    cities.append(city)
    return "Rain."


async def main() -> dict[str, object]:
    agent = Agent(name="Forecaster", instructions="Say what the weather is.", model=MODEL, tools=[weather])
    plain = await Runner.run(agent, "Hello.", max_turns=5)
    # After its call the SDK leaves the choice to the model again.
    forced = agent.clone(model_settings=ModelSettings(tool_choice="required"))
    called = await Runner.run(forced, "How is the weather in Oslo?", max_turns=5)
    streamed = Runner.run_streamed(forced, "And in Bergen?", max_turns=5)
    kinds = {event.type async for event in streamed.stream_events()}
    typed = await Runner.run(Agent(name="Typed", model=MODEL, output_type=City), "Name a city.", max_turns=2)
    return {
        "plain": type(plain.final_output).__name__,
        "calls": len(cities),
        "items": [item.type for item in called.new_items][:2],
        "tokens": called.context_wrapper.usage.total_tokens,
        "kinds": sorted(kinds),
        "streamed": type(streamed.final_output).__name__,
        "typed": typed.final_output.model_dump(),
    }


print(json.dumps(asyncio.run(main())))
