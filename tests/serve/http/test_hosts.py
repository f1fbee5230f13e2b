"""A page of another site that has its own name point at this server (DNS rebinding) is not answered, on any path."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from pydantic import ValidationError

from serve.config.server_settings import ServerSettings
from serve.http.server.bounds import Hosts
from tests.serve.http.serving import Listening, listening


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
