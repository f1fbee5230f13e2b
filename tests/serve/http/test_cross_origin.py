"""Pages of other origins, as a browser asks about them, and pages whose name points at this server."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest
from pydantic import ValidationError

from models.fake_engine import FakeEngine
from serve.config.server_settings import ServerSettings
from serve.http.server.bounds import Hosts
from tests.serve.http.serving import Listening, listening
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


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listening]:
    with listening(tmp_path_factory.mktemp("state"), allowed_hosts=["Pith.example"]) as server:
        yield server


def asked(server: Listening, head: bytes, body: bytes = b"") -> tuple[int, dict[str, str], bytes]:
    with server.connect() as client:
        client.send(head + b"Connection: close\r\n\r\n" + body)
        head, _, body = client.reply().partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    return int(status.split()[1]), {line.split(": ")[0].lower(): line.split(": ")[1] for line in lines}, body


@pytest.mark.parametrize(
    "host",
    [
        b"evil.example", b"localhost.evil.example", b"localhost@evil.example", b"127.0.0.1.evil.example",
        b"evil.example:8000", b"10.0.0.5", b"0.0.0.0", b"[::2]", b"", b":8000", b"localhost:8000:1",
        b"localhost, evil.example", b"evil.example\xff", b"\xf0\x9f\x98\x80", b"[::1", b"x" * 5000,
    ],
)  # fmt: skip
def test_on_loopback_a_request_for_another_host_gets_421_and_reaches_nothing(
    server: Listening, host: bytes
) -> None:
    server.application.seen.clear()
    status, headers, body = asked(
        server, b"GET /metrics HTTP/1.1\r\nX-Request-ID: mine\r\nHost: " + host + b"\r\n"
    )
    assert (status, headers["x-request-id"], server.application.seen) == (421, "mine", [])
    found = json.loads(body)
    assert found["error"] == {
        "message": found["detail"],
        "type": "invalid_request_error",
        "param": None,
        "code": "misdirected_request",
    }
    assert "server.allowed_hosts" in found["detail"]


@pytest.mark.parametrize(
    "host",
    [
        b"localhost", b"LocalHost:8000", b"localhost.", b"localhost:", b"127.0.0.1", b"127.0.0.1:65535",
        b"[::1]", b"[::1]:8000", b"[0:0:0:0:0:0:0:1]:80", b"pith.example", b"PITH.example:443", b"pith.example.",
    ],
)  # fmt: skip
def test_on_loopback_this_machines_names_and_the_configured_ones_are_answered(
    server: Listening, host: bytes
) -> None:
    assert asked(server, b"GET / HTTP/1.1\r\nHost: " + host + b"\r\n")[0] == 200


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"GET http://evil.example/metrics HTTP/1.1\r\nHost: localhost\r\n", 421),
        (b"GET http://localhost@evil.example/ HTTP/1.1\r\nHost: localhost\r\n", 421),
        (b"GET http://localhost:8000/metrics HTTP/1.1\r\nHost: evil.example\r\n", 421),
        (b"GET http://localhost:8000/metrics HTTP/1.1\r\nHost: localhost\r\n", 200),
        (b"GET /http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n", 200),
        # No browser is that old, or leaves its host out.
        (b"GET /metrics HTTP/1.0\r\n", 200),
        (b"GET http://evil.example/metrics HTTP/1.0\r\n", 421),
        (b"GET /metrics HTTP/1.1\r\n", 400),
    ],
)
def test_the_target_counts_too_and_http_1_0_needs_no_host(
    server: Listening, line: bytes, status: int
) -> None:
    assert asked(server, line)[0] == status


def test_a_body_that_comes_with_it_does_not_hide_the_answer_and_the_next_request_is_read(
    server: Listening,
) -> None:
    with server.connect() as client:
        client.send(
            b"POST /echo HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 1000000\r\n\r\n" + bytes(10**6)
        )
        assert client.answer().startswith(b"HTTP/1.1 421")
        client.send(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert b"HTTP/1.1 200" in client.reply()


def test_requests_in_one_packet_are_judged_one_by_one(server: Listening) -> None:
    ours, others = (
        b"GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /b HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    )
    server.application.seen.clear()
    with server.connect() as client:
        client.send(ours + others + ours + others + b"GET /c HTTP/1.0\r\n\r\n")
        replies = client.reply()
    assert [part[:3] for part in replies.split(b"HTTP/1.1 ")[1:]] == [b"200", b"421", b"200", b"421", b"200"]
    assert server.application.seen == ["/a", "/a", "/c"]


@pytest.mark.parametrize(
    ("bound_to", "configured", "host", "known"),
    [
        ("127.0.0.1", [], "127.0.0.1", True),
        ("localhost", [], "evil.example", False),
        ("::1", [], "evil.example", False),
        ("::1", [], "[::1]:80", True),
        ("127.0.0.1", ["*"], "evil.example", True),
        # Kubernetes asks by the pod's address; so may whoever is not told a name.
        ("0.0.0.0", [], "anything at all", True),
        ("0.0.0.0", ["pith.example"], "10.0.0.5:8000", True),
        ("::", ["pith.example"], "[fd00::7]:8000", True),
        ("0.0.0.0", ["pith.example"], "localhost", True),
        ("0.0.0.0", ["pith.example"], "pith.example", True),
        ("0.0.0.0", ["pith.example"], "evil.example", False),
        ("gpu1.lan", ["pith.example"], "GPU1.lan:8000", True),
        ("0.0.0.0", ["*"], "evil.example", True),
    ],
)
def test_which_names_a_port_answers_to(bound_to: str, configured: list[str], host: str, known: bool) -> None:
    hosts = Hosts(bound_to, configured)
    assert hosts.has(host.encode()) == known
    assert hosts.has(host.encode()) == known


def test_what_is_remembered_of_names_is_bounded() -> None:
    hosts = Hosts("127.0.0.1", [])
    for port in range(1000):
        assert hosts.has(b"localhost:%d" % port)
    assert len(hosts._known) <= 64


@pytest.mark.parametrize("name", ["http://pith.example", "pith.example:443", "a b", "", "[::1]", "*.example"])
def test_a_name_that_is_none_is_refused_in_the_configuration(name: str) -> None:
    with pytest.raises(ValidationError, match="allowed_hosts"):
        ServerSettings(allowed_hosts=[name])
    assert ServerSettings(allowed_hosts=["Pith.Example."]).allowed_hosts == ["pith.example"]


def test_an_anthropic_client_gets_the_error_in_its_own_shape(server: Listening) -> None:
    line = b"POST /anthropic/v1/messages HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 0\r\n"
    status, headers, body = asked(server, line)
    assert (status, json.loads(body)["type"]) == (421, "error")
    assert json.loads(body)["request_id"] == headers["request-id"]
