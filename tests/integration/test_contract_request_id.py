"""`X-Request-ID` on every response of every route (contract, section 4), on the real server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest

if TYPE_CHECKING:
    from tests.integration.running import Server

CHAT = {"messages": [{"role": "user", "content": "Hello."}], "max_tokens": 1}
COMPLETIONS = "/v1/chat/completions"

# What is asked, with which key, and what it answers: at least one row a route and status.
RESPONSES: list[tuple[str, str, Any, bool, int]] = [
    ("GET", "/health", None, False, 200),
    ("GET", "/ready", None, False, 200),
    ("GET", "/docs", None, False, 200),
    ("GET", "/openapi.json", None, False, 200),
    ("GET", "/v1/catalog", None, False, 200),
    ("GET", "/v1/models", None, True, 200),
    ("GET", "/v1/models", None, False, 401),
    ("POST", COMPLETIONS, CHAT, True, 200),
    ("POST", COMPLETIONS, {**CHAT, "stream": True}, True, 200),
    ("POST", COMPLETIONS, {**CHAT, "echo": True}, True, 400),
    ("POST", COMPLETIONS, CHAT, False, 401),
    ("POST", COMPLETIONS, {}, True, 422),
    ("POST", COMPLETIONS, {**CHAT, "model": "unknown"}, True, 422),
    ("GET", "/nothing-here", None, False, 404),
    ("PUT", "/v1/catalog", None, False, 405),
    ("OPTIONS", COMPLETIONS, None, False, 405),
]
every_response = pytest.mark.parametrize(
    ("method", "path", "body", "keyed", "status"),
    RESPONSES,
    ids=[f"{method} {path} {status}" for method, path, _, _, status in RESPONSES],
)

# The value sent, and whether it comes back.
VALUES = [
    pytest.param(b"a", True, id="4 X-Request-ID: one character is accepted"),
    pytest.param(b"trace-01/2.3:4", True, id="4 X-Request-ID: punctuation is accepted"),
    pytest.param(b"x" * 128, True, id="4 X-Request-ID: 128 characters are accepted"),
    pytest.param(b"x" * 129, False, id="4 X-Request-ID: 129 characters are replaced"),
    pytest.param(b"x" * 20_000, False, id="4 X-Request-ID: 20000 characters are replaced"),
    pytest.param("é".encode(), False, id="4 X-Request-ID: non-ASCII is replaced"),
    pytest.param(b"\xff\xfe", False, id="4 X-Request-ID: bytes that are no UTF-8 are replaced"),
    pytest.param(b"", False, id="4 X-Request-ID: an empty value is replaced"),
]


def ask(
    server: Server, method: str, path: str, body: Any, keyed: bool, request_id: bytes | None
) -> httpx.Response:
    headers = {b"Authorization": f"Bearer {server.key}".encode()} if keyed else {}
    if request_id is not None:
        headers[b"X-Request-ID"] = request_id
    return httpx.request(method, server.url + path, json=body, headers=headers, timeout=60)


@every_response
def test_an_id_is_made_where_none_was_sent(
    method: str, path: str, body: Any, keyed: bool, status: int, server: Server
) -> None:
    replies = [ask(server, method, path, body, keyed, None) for _ in range(2)]
    assert [reply.status_code for reply in replies] == [status, status]
    ids = [reply.headers.get_list("x-request-id") for reply in replies]
    assert [len(found) for found in ids] == [1, 1]
    assert all(0 < len(found[0]) <= 128 for found in ids)
    assert ids[0] != ids[1]


@every_response
@pytest.mark.parametrize(("sent", "comes_back"), VALUES)
def test_an_id_comes_back_or_is_replaced(
    sent: bytes, comes_back: bool, method: str, path: str, body: Any, keyed: bool, status: int, server: Server
) -> None:
    reply = ask(server, method, path, body, keyed, sent)
    assert reply.status_code == status
    found = reply.headers.get_list("x-request-id")
    assert len(found) == 1
    if comes_back:
        assert found[0].encode() == sent
    else:
        assert found[0].encode() != sent
        assert 0 < len(found[0]) <= 128
        assert found[0].isascii() and found[0].isprintable()


def test_an_offer_to_upgrade_the_protocol_is_answered_as_http(server: Server) -> None:
    """4: every response carries X-Request-ID, also where a client offers a WebSocket."""
    offer = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    reply = httpx.get(f"{server.url}/v1/catalog", headers=offer)
    assert reply.headers.get("x-request-id")
    assert reply.status_code == 200


def test_the_same_id_twice_is_two_requests(http: httpx.Client) -> None:
    """4 X-Request-ID: it correlates and deduplicates nothing."""
    headers = {"X-Request-ID": "the-same"}
    replies = [http.post(COMPLETIONS, json=CHAT, headers=headers) for _ in range(2)]
    assert [reply.headers["x-request-id"] for reply in replies] == ["the-same", "the-same"]
    assert replies[0].json()["id"] != replies[1].json()["id"]
