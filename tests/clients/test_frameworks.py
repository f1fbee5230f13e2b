"""Frameworks of agents, prompts and evaluations, which mostly speak through OpenAI's SDK."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clients.running import ClientRun


def is_graph(found: dict[str, Any]) -> bool:
    """Two turns of a graph whose first model calls a tool and whose second answers."""
    assert found["types"] == ["human", "ai", "tool", "ai"] and found["result"] == "Rain."
    assert found["answer"] and found["pieces"] > 1
    return bool(found["kept"] == 8)


@pytest.mark.client(
    "langgraph", "a graph: a tool called and run by `ToolNode`, a checkpoint, messages streamed"
)
def test_langgraph_runs_a_graph(client_run: ClientRun) -> None:
    assert is_graph(client_run("graph.py"))


@pytest.mark.client(
    "langgraph-node", "a graph: a tool called and run by `ToolNode`, a checkpoint, messages streamed"
)
def test_langgraph_for_node_runs_a_graph(client_run: ClientRun) -> None:
    assert is_graph(client_run("graph.mjs"))


@pytest.mark.client(
    "smolagents", "`OpenAIModel`: a chat, a stream; `ToolCallingAgent`, whose tools are demanded"
)
def test_smolagents_runs_an_agent(client_run: ClientRun) -> None:
    found = client_run("agent.py")
    assert found["text"] and found["tokens"] > 0
    assert found["streamed"] and found["pieces"] > 1
    assert set(found["called"]) & {"weather", "final_answer"}


@pytest.mark.client(
    "autogen", "`OpenAIChatCompletionClient`: a chat, a stream, a tool demanded; `AssistantAgent`"
)
def test_autogen_runs_an_assistant(client_run: ClientRun) -> None:
    found = client_run("agent.py")
    assert found["text"] and found["tokens"] > 0
    assert found["pieces"] > 1 and found["whole"]
    assert found["call"] == ["weather", ["city"]] and found["ran"] >= 1
    assert found["sources"] == ["one", "user"]


@pytest.mark.client("cohere", "`ClientV2.rerank`, `Client.rerank` with its documents, errors by class")
def test_cohere_reranks(client_run: ClientRun) -> None:
    found = client_run("rerank.py")
    assert found["order"][0] == found["older"][0] == 1
    assert len(found["order"]) == 2 and sorted(found["older"]) == [0, 1, 2]
    assert found["scores"] == sorted(found["scores"], reverse=True)
    assert found["documents"][0] == "Invoices are due in March."
    assert found["wrong key"] == ["UnauthorizedError", 401]
