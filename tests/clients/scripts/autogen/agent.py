"""AutoGen: a completion, a stream, and an assistant whose tool is demanded, run, and its result summed up."""

import asyncio
import json
import os

from autogen_agentchat.agents import AssistantAgent
from autogen_core.models import CreateResult, ModelFamily, UserMessage
from autogen_core.tools import FunctionTool
from autogen_ext.models.openai import OpenAIChatCompletionClient

ran = []


async def weather(city: str) -> str:
    """The weather of a city."""
    ran.append(city)
    return "Rain."


async def main() -> dict[str, object]:
    client = OpenAIChatCompletionClient(
        model=os.environ["PITH_CHAT_MODEL"],
        max_tokens=300,
        model_info={
            "vision": False,
            "function_calling": True,
            "json_output": True,
            "family": ModelFamily.UNKNOWN,
            "structured_output": True,
        },
    )
    ask = [UserMessage(content="How is the weather in Oslo?", source="user")]
    plain = await client.create(ask)
    streamed = [each async for each in client.create_stream(ask)]
    tool = FunctionTool(weather, description="The weather of a city.")
    forced = await client.create(ask, tools=[tool], tool_choice="required")
    call = forced.content[0]
    await tool.run_json(json.loads(call.arguments), cancellation_token=None)
    done = await AssistantAgent("one", client, tools=[tool]).run(task="How is the weather in Oslo?")
    return {
        "text": plain.content,
        "tokens": plain.usage.completion_tokens,
        "pieces": sum(isinstance(each, str) for each in streamed),
        "whole": isinstance(streamed[-1], CreateResult) and streamed[-1].content,
        "call": [call.name, sorted(json.loads(call.arguments))],
        "ran": len(ran),
        "sources": sorted({message.source for message in done.messages}),
    }


print(json.dumps(asyncio.run(main())))
