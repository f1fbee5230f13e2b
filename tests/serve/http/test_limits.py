"""The client that a request comes from, on raw sockets, and floods of wrong keys."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from billing.accounts.keys import mint
from billing.errors import InvalidKey
from serve.config.settings import Settings
from serve.config.values import parse_networks
from serve.http.auth import (
    AT_ONCE,
    MAX_CLIENTS,
    MissingKey,
    TooManyWrongKeys,
    WrongKeys,
    bearer_key,
    client_of,
    is_in_networks,
)
from tests.serve.compressing import CONTEXT, QUERY, compressing
from tests.serve.http.serving import Listening, detail, listening
from tests.serve.served import Served, serving, settings_document

FORWARDED = b"X-Forwarded-For: 203.0.113.9, 198.51.100.7\r\nX-Forwarded-Proto: https\r\n"


def client_seen(server: Listening, headers: bytes = FORWARDED) -> Any:
    with server.connect() as client:
        client.send(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n" + headers + b"\r\n")
        return json.loads(client.reply().partition(b"\r\n\r\n")[2])["client"]


def test_nobody_is_believed_who_says_where_a_request_came_from(tmp_path: Path) -> None:
    with listening(tmp_path) as server:
        assert client_seen(server) == "127.0.0.1"


def test_what_the_environment_says_of_proxies_is_no_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    with listening(tmp_path) as server:
        assert client_seen(server) == "127.0.0.1"


def test_a_proxy_that_the_configuration_names_is_believed_as_far_as_it_goes(tmp_path: Path) -> None:
    with listening(tmp_path, trusted_proxies=["127.0.0.0/8"]) as server:
        # The last address is what the proxy saw; what stands before it, its client said.
        assert client_seen(server) == "198.51.100.7"
        assert client_seen(server, b"") == "127.0.0.1"
    with listening(tmp_path, trusted_proxies=["127.0.0.1", "198.51.100.0/24"]) as server:
        assert client_seen(server) == "203.0.113.9"
    with listening(tmp_path, trusted_proxies=["10.0.0.0/8"]) as server:
        assert client_seen(server) == "127.0.0.1"


async def test_the_demo_counts_the_address_that_is_there_and_not_the_one_that_is_claimed(
    tmp_path: Path,
) -> None:
    async with compressing(tmp_path, per_address=2) as served:
        body = json.dumps({"query": QUERY, "input": CONTEXT}).encode()

        def asked(address: Listening) -> list[int]:
            return [_demo(address, body, f"203.0.113.{at}") for at in range(4)]

        with listening(tmp_path, api=served.api) as server:
            assert await asyncio.to_thread(asked, server) == [200, 200, 429, 429]


def _demo(server: Listening, body: bytes, claimed: str) -> int:
    head = (
        f"POST /v1/demo/compress HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: {claimed}\r\nConnection: close\r\n"
    )
    with server.connect() as client:
        client.send(
            f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
        )
        return int(client.reply().split()[1])


def test_a_trusted_proxy_is_a_network(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="trusted_proxies"):
        Settings.model_validate(settings_document(tmp_path, server={"trusted_proxies": ["proxy.example"]}))


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        (b"", "0 Host headers"),
        (b"Host: a\r\nHost: b\r\n", "2 Host headers"),
        (b"Host: a\r\nAuthorization: Bearer a\r\nauthorization: Bearer b\r\n", "Authorization"),
    ],
)
def test_headers_that_may_stand_once_do(tmp_path: Path, headers: bytes, words: str) -> None:
    with listening(tmp_path) as server:
        with server.connect() as client:
            client.send(b"GET / HTTP/1.1\r\n" + headers + b"\r\n")
            status, why = detail(client.reply())
        assert (status, words in why) == (400, True)
        with server.connect() as client:
            client.send(b"GET / HTTP/1.0\r\n\r\n")
            assert client.reply().startswith(b"HTTP/1.1 200")


def test_a_client_is_an_address_or_an_ipv6_network() -> None:
    assert client_of("192.0.2.1") == client_of("::ffff:192.0.2.1") == client_of("::FFFF:192.0.2.1")
    assert client_of("2001:db8::1") == client_of("2001:db8:0:0:ffff::2") != client_of("2001:db8:0:1::1")
    assert client_of(None) == client_of("testclient") == client_of("::ffff:x") == "unknown"
    assert is_in_networks("::ffff:10.0.0.1", parse_networks(["10.0.0.0/8"]))
    assert not is_in_networks("11.0.0.1", parse_networks(["10.0.0.0/8", "::/0"]))
    assert not is_in_networks("garbage", parse_networks(["0.0.0.0/0"]))


NOW = datetime(2026, 11, 22, tzinfo=UTC)
WRONG = InvalidKey("unknown id")


@pytest_asyncio.fixture
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    async with serving(tmp_path_factory.mktemp("served")) as service:
        yield await service.renewed()


@pytest.mark.asyncio
async def test_random_keys_get_429_and_a_right_key_from_the_same_address_is_let_in(served: Served) -> None:
    found = [await served.get("/v1/models", key=mint().token).run() for _ in range(AT_ONCE + 20)]
    statuses = [each.status for each in found]
    assert statuses[:AT_ONCE] == [403] * AT_ONCE
    assert statuses[-1] == 429
    assert int(found[-1].reply_headers["retry-after"]) >= 1
    assert found[-1].json()["error"]["code"] == "too_many_wrong_keys"
    assert (await served.get("/v1/models").run()).status == 200
    assert (await served.get("/v1/models", key="malformed").run()).status == 429


def told(wrong_keys: WrongKeys, client: str, after_s: float = 0) -> type[Exception]:
    return type(wrong_keys.add(client, WRONG, now=NOW + timedelta(seconds=after_s)))


def test_clients_are_counted_apart_and_forgiven_with_time() -> None:
    wrong_keys = WrongKeys()
    for _ in range(10 * AT_ONCE):
        last = told(wrong_keys, "one")
    assert last is TooManyWrongKeys
    assert told(wrong_keys, "other") is InvalidKey
    assert told(wrong_keys, "one", 10) is InvalidKey
    # A clock that steps back forgives nothing, and holds nothing against anyone.
    assert told(wrong_keys, "other", -3600) is InvalidKey


def test_no_more_clients_are_remembered_than_a_bound() -> None:
    wrong_keys = WrongKeys()
    for at in range(MAX_CLIENTS + 10):
        told(wrong_keys, str(at))
    assert len(wrong_keys._counts) == MAX_CLIENTS


@pytest.mark.parametrize("space", ["\xa0", "\x85", "\x1c", "\u2003", "\x0c"])
def test_only_what_http_calls_white_space_is_trimmed_off_a_key(space: str) -> None:
    assert bearer_key("Bearer  key\t ") == "key"
    assert bearer_key(f"Bearer key{space}") == f"key{space}"
    assert bearer_key(f"Bearer {space}key") == f"{space}key"
    with pytest.raises(MissingKey):
        bearer_key(f"Bearer{space}key")
