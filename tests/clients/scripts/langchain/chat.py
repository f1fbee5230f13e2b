"""ChatOpenAI of LangChain: invoked, streamed, with tools, a structured output, and an agent."""

import json
import os

from langchain.agents import create_agent
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

ASK = "How is the weather in Oslo?"


class City(BaseModel):
    """A city."""

    name: str
    is_capital: bool


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    return "Rain."


model = ChatOpenAI(model=os.environ["PITH_CHAT_MODEL"], temperature=0)
plain = model.invoke(ASK)
chunks = list(model.stream(ASK))
whole = chunks[0]
for chunk in chunks[1:]:
    whole += chunk
forced = model.bind_tools([weather], tool_choice="required").invoke(ASK)
call = forced.tool_calls[0]
result = ToolMessage(weather.invoke(call["args"]), tool_call_id=call["id"])
answered = model.bind_tools([weather]).invoke([HumanMessage(ASK), forced, result])
agent = create_agent(model, [weather])
said = agent.invoke({"messages": [HumanMessage(ASK)]}, {"recursion_limit": 8})
typed_agent = create_agent(model, [], response_format=City)
print(
    json.dumps(
        {
            "text": plain.content,
            "usage": plain.usage_metadata,
            "chunks": len(chunks),
            "streamed": whole.content,
            "call": [call["name"], sorted(call["args"])],
            "answered": answered.type,
            "agent": [message.type for message in said["messages"]],
            "structured": model.with_structured_output(City).invoke(ASK).model_dump(),
            "by function": model.with_structured_output(City, method="function_calling")
            .invoke(ASK)
            .model_dump(),
            "agent's": typed_agent.invoke({"messages": [HumanMessage(ASK)]})[
                "structured_response"
            ].model_dump(),
        }
    )
)
