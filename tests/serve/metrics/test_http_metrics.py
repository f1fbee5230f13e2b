"""What is counted of HTTP requests, and that no client can make up a label."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.serve.metrics.readings import Readings, grown, of_registry
from tests.serve.served import Client, Served, serving


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
