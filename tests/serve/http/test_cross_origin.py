"""Pages of other origins: what a browser is told before and after it sends their requests."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from models.fake_engine import FakeEngine
from tests.serve.loopback_service import Running, service

PAGE = "https://chat.example.com"
OTHER = "https://other.example.com"
SENT = "authorization,content-type,x-api-key,anthropic-version,x-stainless-lang,x-stainless-retry-count,x-request-id"
PATHS = (
    "/v1/chat/completions",
    "/openai/v1/chat/completions",
    "/anthropic/v1/messages",
    "/v1/models",
    "/health",
)
HI = {"model": "pith-mini", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with service(tmp_path_factory.mktemp("open"), FakeEngine(), cors_origins=[PAGE]) as found:
        yield found


def preflight(url: str, origin: str, method: str = "POST") -> httpx.Response:
    asked = {"Access-Control-Request-Method": method, "Access-Control-Request-Headers": SENT}
    return httpx.options(url, headers={"Origin": origin, **asked})


def listed(reply: httpx.Response, name: str) -> set[str]:
    return {item.strip().lower() for item in reply.headers.get(name, "").split(",")}


@pytest.mark.parametrize("path", PATHS)
def test_a_preflight_is_answered_without_a_key(running: Running, path: str) -> None:
    reply = preflight(running.url + path, PAGE)
    assert reply.status_code == 200
    assert reply.headers["access-control-allow-origin"] == PAGE
    assert reply.headers["access-control-allow-credentials"] == "true"
    assert listed(reply, "access-control-allow-headers") == set(SENT.split(","))
    assert {"get", "post", "delete"} <= listed(reply, "access-control-allow-methods")
    assert "origin" in listed(reply, "vary")
    assert reply.headers["x-request-id"].startswith("req_")


@pytest.mark.parametrize(("origin", "method"), [(OTHER, "POST"), ("null", "POST"), (PAGE, "PATCH")])
def test_a_preflight_of_a_page_that_is_not_named_is_refused(
    running: Running, origin: str, method: str
) -> None:
    reply = preflight(running.url + PATHS[0], origin, method)
    assert reply.status_code == 400
    assert reply.headers.get("access-control-allow-origin") in (None, PAGE if origin == PAGE else None)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", PATHS[:2])
def test_a_reply_may_be_read_with_what_it_says_in_its_headers(
    running: Running, path: str, stream: bool
) -> None:
    with running.client() as client:
        reply = client.post(path, json=HI | {"stream": stream}, headers={"Origin": PAGE})
    assert reply.status_code == 200 and reply.content
    readable(reply)
    sent = {name for name in reply.headers if name.startswith(("x-service", "x-ratelimit", "x-request"))}
    assert {"x-request-id"} <= sent <= listed(reply, "access-control-expose-headers")


@pytest.mark.parametrize(
    ("path", "key", "body", "status"),
    [
        ("/v1/chat/completions", "wrong", HI, 403),
        ("/openai/v1/chat/completions", "wrong", HI, 401),
        ("/openai/v1/chat/completions", None, HI | {"model": "none"}, 404),
        ("/v1/chat/completions", None, {"messages": 3}, 422),
        ("/v1/nowhere", None, {}, 404),
    ],
)
def test_an_error_may_be_read(
    running: Running, path: str, key: str | None, body: object, status: int
) -> None:
    headers = {"Origin": PAGE, "Authorization": f"Bearer {key or running.key}"}
    reply = httpx.post(running.url + path, json=body, headers=headers)
    assert reply.status_code == status and reply.json()["error"]["message"]
    readable(reply)


def test_an_unexpected_error_may_be_read(running: Running) -> None:
    running.database.is_broken = True
    try:
        headers = {"Origin": PAGE, "Authorization": "Bearer pith_0123456789abcdef_" + "x" * 43}
        reply = httpx.get(running.url + "/openai/v1/models", headers=headers)
    finally:
        running.database.is_broken = False
    assert reply.status_code == 500
    readable(reply)


def readable(reply: httpx.Response) -> None:
    """To the page, with the headers that are not always shown."""
    assert reply.headers["access-control-allow-origin"] == PAGE
    assert {
        "x-request-id",
        "retry-after",
        "x-service-metering-status",
        "x-ratelimit-remaining-requests",
    } <= listed(reply, "access-control-expose-headers")
    assert "origin" in listed(reply, "vary")


def test_a_page_that_is_not_named_cannot_read_a_reply_and_caches_know(running: Running) -> None:
    for headers in ({"Origin": OTHER}, {}):
        reply = httpx.get(running.url + "/health", headers=headers)
        assert reply.status_code == 200
        assert "access-control-allow-origin" not in reply.headers
        assert "origin" in listed(reply, "vary")


def test_where_all_origins_may_call_none_sends_credentials(tmp_path_factory: pytest.TempPathFactory) -> None:
    with service(tmp_path_factory.mktemp("all"), FakeEngine(), cors_origins=["*"]) as running:
        for reply in (
            preflight(running.url + PATHS[0], OTHER),
            httpx.get(running.url + "/health", headers={"Origin": "null"}),
        ):
            assert reply.status_code == 200
            assert reply.headers["access-control-allow-origin"] == "*"
            assert "access-control-allow-credentials" not in reply.headers


def test_a_server_is_closed_unless_told_otherwise(tmp_path_factory: pytest.TempPathFactory) -> None:
    with service(tmp_path_factory.mktemp("closed"), FakeEngine()) as running:
        assert preflight(running.url + PATHS[0], PAGE).status_code == 405
        reply = httpx.get(running.url + "/health", headers={"Origin": PAGE})
    assert reply.status_code == 200
    assert not [name for name in reply.headers if name.startswith("access-control")]
