"""LangGraph: a graph of one's own, a model that must call a tool, a node that runs it, a checkpoint, and a stream."""

import json
import os

from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    return "Rain."


model = ChatOpenAI(model=os.environ["PITH_CHAT_MODEL"], temperature=0, max_tokens=300)


def ask(state: MessagesState) -> dict:
    return {"messages": [model.bind_tools([weather], tool_choice="required").invoke(state["messages"])]}


def answer(state: MessagesState) -> dict:
    return {"messages": [model.invoke(state["messages"])]}


graph = StateGraph(MessagesState)
graph.add_node("ask", ask)
graph.add_node("tools", ToolNode([weather]))
graph.add_node("answer", answer)
for one, next_one in ((START, "ask"), ("ask", "tools"), ("tools", "answer"), ("answer", END)):
    graph.add_edge(one, next_one)
compiled = graph.compile(checkpointer=InMemorySaver())
thread = {"configurable": {"thread_id": "one"}}
said = compiled.invoke({"messages": [HumanMessage("How is the weather in Oslo?")]}, thread)["messages"]
pieces = [
    piece.content
    for piece, where in compiled.stream(
        {"messages": [HumanMessage("And now?")]}, thread, stream_mode="messages"
    )
    if where["langgraph_node"] == "answer" and piece.content
]
print(
    json.dumps(
        {
            "types": [message.type for message in said],
            "result": said[2].content,
            "answer": said[-1].content,
            "pieces": len(pieces),
            "kept": len(compiled.get_state(thread).values["messages"]),
        }
    )
)
