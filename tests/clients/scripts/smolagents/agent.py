"""smolagents: a chat, a stream, and an agent whose tool is demanded of the model and run."""

import json
import os

from smolagents import ChatMessage, MessageRole, OpenAIModel, ToolCallingAgent, tool

ran = []


@tool
def weather(city: str) -> str:
    """The weather of a city.

    Args:
        city: Its name.
    """
    ran.append(city)
    return "Rain."


model = OpenAIModel(
    os.environ["PITH_CHAT_MODEL"],
    api_base=os.environ["OPENAI_BASE_URL"],
    api_key=os.environ["OPENAI_API_KEY"],
    max_tokens=300,
)
ask = [ChatMessage(role=MessageRole.USER, content="Hello.")]
plain = model.generate(ask)
pieces = [delta.content for delta in model.generate_stream(ask) if delta.content]
agent = ToolCallingAgent([weather], model, max_steps=2, verbosity_level=0)
result = agent.run("How is the weather in Oslo?", return_full_result=True)
print(
    json.dumps(
        {
            "text": plain.content,
            "tokens": plain.token_usage.total_tokens,
            "streamed": "".join(pieces),
            "pieces": len(pieces),
            "called": sorted(
                {call["function"]["name"] for step in result.steps for call in step.get("tool_calls") or []}
            ),
            "ran": len(ran),
        }
    )
)
