"""Who may call, what they may spend and how fast: 401, 402, 403, 429 and unmetered projects, on the real server."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.integration.contract_shapes import ERROR, mismatches
from tests.integration.running import wait_for

if TYPE_CHECKING:
    from tests.integration.running import Server

CHAT = {"messages": [{"role": "user", "content": "Hello."}], "max_tokens": 2}
KEYED_ROUTES = [("GET", "/v1/models", None), ("POST", "/v1/chat/completions", CHAT)]
both_routes = pytest.mark.parametrize(("method", "path", "body"), KEYED_ROUTES, ids=["models", "chat"])
both_forms = pytest.mark.parametrize("stream", [False, True], ids=["JSON", "SSE"])


@dataclass
class Workspace:
    """A workspace of this test run, and the projects made in it."""

    name: str
    server: Server

    def new_key(self, project: str, *options: str) -> str:
        self.server.pith("project", "create", self.name, project, *options)
        return str(self.server.pith("key", "create", f"{self.name}/{project}")["key"])


@pytest.fixture(scope="module")
def workspace(server: Server) -> Workspace:
    name = f"accounts-{secrets.token_hex(4)}"
    server.pith("workspace", "create", name)
    return Workspace(name, server)


def check_error(reply: httpx.Response, status: int, code: str) -> None:
    assert reply.status_code == status, reply.text
    assert reply.headers["content-type"].partition(";")[0] == "application/json"
    assert reply.headers["x-request-id"]
    assert mismatches(reply.json(), ERROR) == []
    assert isinstance(reply.json()["detail"], str)
    assert reply.json()["error"]["code"] == code


@both_routes
@pytest.mark.parametrize("header", [None, "", "Bearer", "Basic dXNlcjpwYXNz", "Token abc", "pith-key"])
def test_a_missing_key_is_a_401_that_says_how_to_send_one(
    method: str, path: str, body: Any, header: str | None, server: Server
) -> None:
    """5 Authentication and 7 Errors: missing bearer key, 401."""
    headers = {} if header is None else {"Authorization": header}
    reply = httpx.request(method, server.url + path, json=body, headers=headers)
    check_error(reply, 401, "missing_api_key")
    assert reply.headers["www-authenticate"] == "Bearer"
    assert "Authorization: Bearer" in reply.json()["detail"]


@both_routes
@pytest.mark.parametrize(
    "key", [b"no-such-key", b"x" * 4000, b"\xff\xfe\xc3\xa9", b"' OR 1=1 --", b"two words"], ids=repr
)
def test_a_wrong_key_is_a_403(method: str, path: str, body: Any, key: bytes, server: Server) -> None:
    """5 Authentication and 7 Errors: invalid key, 403."""
    headers = {b"Authorization": b"Bearer " + key}
    reply = httpx.request(method, server.url + path, json=body, headers=headers)
    check_error(reply, 403, "invalid_api_key")


def test_a_key_with_one_character_changed_is_a_403(server: Server) -> None:
    """5 Authentication: the key is a project API key, whole."""
    other = server.key[:-1] + ("a" if server.key[-1] != "a" else "b")
    for key in (other, server.key[:-1], server.key + "a"):
        with server.client(key=key) as client:
            check_error(client.get("/v1/models"), 403, "invalid_api_key")


def test_the_key_is_asked_for_before_the_body_is_read(server: Server) -> None:
    """7 Errors: 401 comes before 422, so that nobody without a key learns what is parsed."""
    reply = httpx.post(f"{server.url}/v1/chat/completions", content=b"{not json")
    check_error(reply, 401, "missing_api_key")


def test_the_bearer_scheme_is_read_in_any_case(server: Server) -> None:
    """5 Authentication: HTTP bearer, whose scheme name has no case."""
    reply = httpx.get(f"{server.url}/v1/models", headers={"Authorization": f"bearer {server.key}"})
    assert reply.status_code == 200


def test_a_revoked_key_is_a_403_within_five_seconds(workspace: Workspace, server: Server) -> None:
    """5 Authentication and 7 Errors: revoked key, 403."""
    key = workspace.new_key("revoked")
    with server.client(key=key) as client:
        assert client.get("/v1/models").status_code == 200
        server.pith("key", "revoke", key)
        wait_for(
            lambda: client.get("/v1/models").status_code == 403,
            what="the revoked key is refused",
            every_s=0.2,
        )
        check_error(client.get("/v1/models"), 403, "invalid_api_key")
        check_error(client.post("/v1/chat/completions", json=CHAT), 403, "invalid_api_key")


@pytest.fixture(scope="module")
def poor_key(server: Server) -> str:
    return server.new_key(f"poor-{secrets.token_hex(4)}", limit_usd="0.000001")


@both_forms
def test_a_workspace_over_its_quota_is_a_402(stream: bool, poor_key: str, server: Server) -> None:
    """7 Errors: workspace quota exceeded, 402."""
    with server.client(key=poor_key) as client:
        reply = client.post("/v1/chat/completions", json={**CHAT, "stream": stream})
        check_error(reply, 402, "quota_exceeded")
        assert client.get("/v1/models").status_code == 200


def test_a_workspace_without_billing_is_a_402_until_it_is_back(workspace: Workspace, server: Server) -> None:
    """7 Errors: billing disabled, 402."""
    key = workspace.new_key("billing")
    with server.client(key=key) as client:
        assert client.post("/v1/chat/completions", json=CHAT).status_code == 200
        server.pith("workspace", "set", workspace.name, "--no-billing")
        try:
            for stream in (False, True):
                reply = client.post("/v1/chat/completions", json={**CHAT, "stream": stream})
                check_error(reply, 402, "billing_disabled")
        finally:
            server.pith("workspace", "set", workspace.name, "--billing")
        assert client.post("/v1/chat/completions", json=CHAT).status_code == 200


def test_the_request_limit_of_a_project_is_a_429_on_both_routes(workspace: Workspace, server: Server) -> None:
    """7 Errors and 8 Limits: the project rate limit, enforced per project. Each route has a count of its own."""
    key = workspace.new_key("slow", "--requests-per-minute", "2")
    with server.client(key=key) as client:
        for _ in range(2):
            listed, chatted = client.get("/v1/models"), client.post("/v1/chat/completions", json=CHAT)
            assert (listed.status_code, chatted.status_code) == (200, 200)
            limits = [reply.headers["x-ratelimit-limit-requests"] for reply in (listed, chatted)]
            assert limits == ["2", "2"]
        assert listed.headers["x-ratelimit-remaining-requests"] == "0"
        for stream in (False, True):
            check_limited(client.post("/v1/chat/completions", json={**CHAT, "stream": stream}))
        check_limited(client.get("/v1/models"))


def check_limited(reply: httpx.Response) -> None:
    check_error(reply, 429, "rate_limit_exceeded")
    # The window slides over two whole minutes, so a wait may exceed one.
    assert 1 <= int(reply.headers["retry-after"]) <= 120
    assert reply.headers["x-ratelimit-limit-requests"] == "2"
    assert reply.headers["x-ratelimit-remaining-requests"] == "0"
    assert 0 < float(reply.headers["x-ratelimit-reset-requests"].removesuffix("s")) <= 120


def test_another_project_of_the_workspace_is_not_slowed(workspace: Workspace, server: Server) -> None:
    """8 Limits: the rate limit applies per project, and tokens have one of their own."""
    key = workspace.new_key("tokens", "--tokens-per-minute", "1")
    with server.client(key=key) as client:
        assert client.get("/v1/models").status_code == 200
        reply = client.post("/v1/chat/completions", json=CHAT)
        check_error(reply, 429, "rate_limit_exceeded")
        assert reply.headers["x-ratelimit-limit-tokens"] == "1"
        assert int(reply.headers["retry-after"]) >= 1
        assert "x-ratelimit-limit-requests" not in reply.headers


@pytest.fixture
def open_stream(workspace: Workspace, server: Server) -> Iterator[tuple[httpx.Client, httpx.Response]]:
    """A long stream of a project that may have one request in flight, and its client."""
    key = workspace.new_key("single", "--max-in-flight", "1")
    endless = {**CHAT, "max_tokens": 3000, "ignore_eos": True, "stream": True}
    with server.client(key=key) as client:
        request = client.build_request("POST", "/v1/chat/completions", json=endless)
        with closing(client.send(request, stream=True)) as reply:
            assert reply.status_code == 200
            yield client, reply


def test_a_second_request_in_flight_is_a_429_until_the_first_ends(
    open_stream: tuple[httpx.Client, httpx.Response],
) -> None:
    """7 Errors: project rate limit exceeded, 429, for requests in flight too."""
    client, first = open_stream
    # Kept, because a reader that is thrown away closes its response.
    pieces = first.iter_bytes()
    assert next(pieces)
    second = client.post("/v1/chat/completions", json=CHAT)
    check_error(second, 429, "rate_limit_exceeded")
    assert int(second.headers["retry-after"]) >= 1
    first.close()
    wait_for(
        lambda: client.post("/v1/chat/completions", json=CHAT).status_code == 200,
        what="the project's slot is free again",
        every_s=0.2,
    )


@pytest.fixture(scope="module")
def unmetered_key(workspace: Workspace) -> str:
    return workspace.new_key("unmetered", "--no-metered")


@both_forms
def test_an_unmetered_project_is_served_and_not_recorded(
    stream: bool, unmetered_key: str, server: Server
) -> None:
    """2 Metering: not_applicable; 4: X-Service-Metering-Status not_applicable, on both forms."""
    with server.client(key=unmetered_key) as client:
        reply = client.post("/v1/chat/completions", json={**CHAT, "stream": stream})
    assert reply.status_code == 200, reply.text
    assert reply.headers["x-service-metering-status"] == "not_applicable"
    assert '"metering":{"persisted":false,"status":"not_applicable"}' in reply.text.replace(" ", "")
