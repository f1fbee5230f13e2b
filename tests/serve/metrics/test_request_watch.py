"""The line of each request, and the counts of HTTP requests: no client can make up a label."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from models.errors import EngineFailed
from serve.logs.lines import LogFormat, formatter
from serve.logs.outlet import Outlet
from tests.serve.metrics.readings import Readings, grown, of_registry
from tests.serve.served import Client, Gate, Served, serving

CANARY = "the patient's canary 4711"
PATHS = ("/v1/chat/completions", "/openai/v1/chat/completions", "/anthropic/v1/messages", "/v1/compress")


class Lines:
    """What a process that logs in this form would have written, every level included."""

    def __init__(self, log_format: LogFormat) -> None:
        self._raw: list[bytes] = []
        self.outlet = Outlet(self._raw.append, formatter(log_format))

    def text(self) -> str:
        self.outlet.drain(10)
        return b"".join(self._raw).decode()

    def requests(self) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in self.text().splitlines()]
        return [line for line in found if line["logger"] == "pith.access"]


@pytest.fixture
def lines(request: pytest.FixtureRequest) -> Iterator[Lines]:
    found, root = Lines(getattr(request, "param", "json")), logging.getLogger()
    level, access = root.level, logging.getLogger("pith.access").level
    root.addHandler(found.outlet)
    root.setLevel(logging.DEBUG)
    logging.getLogger("pith.access").setLevel(logging.INFO)
    yield found
    root.removeHandler(found.outlet)
    root.setLevel(level)
    logging.getLogger("pith.access").setLevel(access)


ACCESS: Mapping[str, Any] = {"logs": {"format": "json", "access": True}}


async def test_a_streamed_chat_has_one_line_with_its_tokens_and_its_cost(
    tmp_path: Path, lines: Lines
) -> None:
    async with serving(tmp_path, **ACCESS) as service:
        served = await service.renewed()
        reply = await served.chat(request_id="mine", stream=True).run()
        (event,) = await served.events("mine")
        caller = await served.accounts.authenticate(served.key, now=datetime.now(UTC))
    (line,) = lines.requests()
    assert reply.status == 200
    assert {
        "level": "info",
        "request_id": "mine",
        "method": "POST",
        "route": "/v1/chat/completions",
        "status": 200,
        "ended": "complete",
        "error": None,
        "workspace_id": caller.workspace_id,
        "project_id": caller.project_id,
        "key_id": caller.key_id,
        "model": "alpha",
        "stream": True,
        "prompt_tokens": event.prompt_tokens,
        "completion_tokens": event.completion_tokens,
        "cost_nano_usd": event.cost_nano_usd,
        "metering": "persisted",
    }.items() <= line.items()
    assert 0 <= line["queue_s"] <= line["first_token_s"] <= line["total_s"]


async def test_the_line_says_whether_the_client_left_or_the_reply_failed(
    tmp_path: Path, lines: Lines
) -> None:
    async with serving(tmp_path, **ACCESS) as service:
        served = await service.renewed()
        served.engine.sleep = gate = Gate(2)
        leaving = served.chat(request_id="left", stream=True)
        running = leaving.start()
        await gate.reached.wait()
        leaving.gone.set()
        await running
        served = await service.renewed()
        served.engine.fails_with, served.engine.fails_after = EngineFailed("it broke"), 2
        await served.chat(request_id="broke", stream=True).run()
        served.engine.fails_after = 0
        await served.chat(request_id="refused", model="nobody's").run()
        await served.chat(request_id="failed").run()
        await served.get("/v1/no/such/path").run()
    said = [(line["route"], line["status"], line["ended"], line["error"]) for line in lines.requests()]
    chat = "/v1/chat/completions"
    assert said == [
        (chat, 200, "client_left", None),
        (chat, 200, "failed", "EngineFailed"),
        (chat, 422, "complete", "UnknownModel"),
        (chat, 502, "failed", "EngineFailed"),
        ("unmatched", 404, "complete", None),
    ]
    left = lines.requests()[0]
    # What was generated before it left was paid for.
    assert (left["completion_tokens"], left["metering"]) == (2, "persisted")


def bodies() -> Iterator[dict[str, Any]]:
    """Good ones, and ones that are refused for what they say."""
    said = [{"role": "user", "content": CANARY}]
    yield {"messages": said, "max_tokens": 3}
    yield {"messages": said, "max_tokens": 3, "stream": True}
    yield {"messages": said, "max_tokens": CANARY}
    yield {"messages": CANARY, "max_tokens": 3}
    yield {"messages": [{"role": CANARY, "content": CANARY}], "max_tokens": 3}
    yield {"messages": said, "max_tokens": 3, CANARY: CANARY}
    yield {"messages": said, "model": CANARY, "max_tokens": 3}


@pytest.mark.parametrize("lines", ["text", "json"], indirect=True)
async def test_no_line_of_any_level_has_a_prompt_a_reply_or_a_key(tmp_path: Path, lines: Lines) -> None:
    async with serving(tmp_path, **ACCESS) as service:
        served = await service.renewed()
        served.engine.text = f"{CANARY} it says"
        for path in PATHS:
            for body in bodies():
                await served.post(path, body).run()
        served.engine.fails_with = EngineFailed("it broke")
        await served.chat(messages=[{"role": "user", "content": CANARY}]).run()
        await served.post(f"/v1/{CANARY}", {}).run()
        wrong = served.key[:-3] + "abc"
        await served.chat(key=wrong).run()
    said = lines.text()
    assert said.count("pith.access") == len(PATHS) * 7 + 3
    assert "canary" not in said
    assert served.key not in said and wrong not in said and served.key.split("_")[2][:20] not in said


async def test_a_request_id_cannot_forge_a_line(tmp_path: Path, lines: Lines) -> None:
    forged = '","status":200,"x":"'
    async with serving(tmp_path, **ACCESS) as service:
        served = await service.renewed()
        await served.chat(request_id=forged).run()
    (line,) = lines.requests()
    assert line["request_id"] == forged


async def test_without_access_nothing_stands_around_a_request(tmp_path: Path, lines: Lines) -> None:
    async with serving(tmp_path) as service:
        served = await service.renewed()
        assert (await served.chat().run()).status == 200
    assert lines.requests() == []


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path) as found:
        yield await found.renewed()


async def counted(served: Served, *clients: Client) -> Readings:
    before = of_registry(served.registry)
    for client in clients:
        await client.run()
    return grown(before, of_registry(served.registry), "pith_http_requests_total")


def requests(route: str, method: str, status: int | str) -> str:
    return f'pith_http_requests_total{{method="{method}",route="{route}",status="{status}"}}'


async def test_requests_are_counted_by_route_method_and_status(served: Served) -> None:
    before = of_registry(served.registry)
    clients = [served.chat(), served.chat(stream=True), served.chat(key="wrong"), served.get("/v1/models")]
    assert await counted(served, *clients) == {
        requests("/v1/chat/completions", "POST", 200): 2,
        requests("/v1/chat/completions", "POST", 403): 1,
        requests("/v1/models", "GET", 200): 1,
    }
    assert grown(before, of_registry(served.registry), "pith_http_request_duration") == {
        'pith_http_request_duration_seconds_count{method="POST",route="/v1/chat/completions"}': 3,
        'pith_http_request_duration_seconds_count{method="GET",route="/v1/models"}': 1,
    }


async def test_an_error_of_a_body_is_counted_with_its_route(served: Served) -> None:
    client = served.chat()
    client.pieces = (b"{",)
    assert await counted(served, client) == {requests("/v1/chat/completions", "POST", 422): 1}


async def test_paths_and_methods_that_a_client_makes_up_share_one_label(served: Served) -> None:
    made_up = [Client(served.api, f"/nothing/{n}", method=f"MADE{n}") for n in range(5)]
    assert await counted(served, *made_up) == {requests("unmatched", "other", 404): 5}
    assert await counted(served, Client(served.api, "/v1/models", method="MADE")) == {
        requests("/v1/models", "other", 405): 1
    }


async def test_a_failure_that_nobody_foresaw_is_a_500(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(served.switch.engine, "generate", broken)
    assert await counted(served, served.chat()) == {requests("/v1/chat/completions", "POST", 500): 1}


async def test_a_client_that_leaves_before_the_response_has_no_status(served: Served) -> None:
    body = json.dumps({"messages": [], "max_tokens": 6}).encode()
    client = served.chat()
    client.pieces, client.gone_after = (body[:4], body[4:]), 1
    assert await counted(served, client) == {requests("/v1/chat/completions", "POST", "none"): 1}
    assert of_registry(served.registry)["pith_http_requests_in_flight"] == 0


async def test_metrics_are_no_public_route(served: Served) -> None:
    assert (await served.get("/metrics").run()).status == 404
