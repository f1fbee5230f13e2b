"""`pith mcp` on a real server: an agent compresses a tool's result and reopens what was left out."""

from __future__ import annotations

import json

from tests.integration.running import Server
from tests.serve.mcp_client import complaint, texts, tools

QUERY = "What is the price of flight 17?"
FLIGHTS = "\n\n".join(
    f"Flight {number} leaves at {number % 24} o'clock, and its price is {number * 7} dollars. \U0001f600"
    for number in range(60)
)


async def test_an_agent_compresses_and_reopens_the_original(server: Server) -> None:
    asked = {"query": QUERY, "text": FLIGHTS, "target_ratio": 0.3}
    async with tools(server.url, key=server.key) as client:
        output, about = texts(await client.call_tool("compress", {**asked, "retain_s": 60}))
        receipt = json.loads(about)
        whole, place = texts(await client.call_tool("retrieve", {"id": receipt["id"]}))
        at = FLIGHTS.index("Flight 30 ")
        part, _ = texts(await client.call_tool("retrieve", {"id": receipt["id"], "start": at, "end": at + 9}))
        _, forgotten = texts(await client.call_tool("compress", asked))
        gone = complaint(await client.call_tool("retrieve", {"id": json.loads(forgotten)["id"]}))
    async with tools(server.url, key=server.new_key("mcp-other")) as client:
        foreign = complaint(await client.call_tool("retrieve", {"id": receipt["id"]}))
    assert "its price is 119 dollars" in output and receipt["compression_ratio"] <= 0.3
    assert receipt["retained_until"] > 0 and "retained_until" not in json.loads(forgotten)
    assert (whole, part) == (FLIGHTS, "Flight 30")
    assert json.loads(place)["length"] == json.loads(place)["end"] == len(FLIGHTS)
    assert "pith refused (404)" in gone and "pith refused (404)" in foreign
