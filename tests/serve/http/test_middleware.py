"""What stands around every route: the request id (contract, section 4), the bound on bodies, and the last resort."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from starlette.types import Message, Receive, Scope, Send

from serve.http.middleware import BodyLimitMiddleware, RequestIdMiddleware
from tests.serve.served import Client, Served, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")
LIMIT = 4096


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    async with serving(tmp_path_factory.mktemp("served")) as service:
        yield await service.renewed()


async def with_id(service: Served, given: str, path: str = "/health") -> Client:
    return await Client(service.api, path, headers={"X-Request-ID": given}).run()


@pytest.mark.parametrize("given", ["a", "req-1", "x" * 128, "!~#[]{}", "../../etc", "two words"])
async def test_a_usable_request_id_is_kept(service: Served, given: str) -> None:
    assert (await with_id(service, given)).reply_headers["x-request-id"] == given


@pytest.mark.parametrize(
    "given", ["", "x" * 129, "x" * 10_000, "tab\there", "é", "\x7f", "a\r\nSet-Cookie: b"]
)
async def test_an_unusable_request_id_is_replaced(service: Served, given: str) -> None:
    assert re.fullmatch("req_[0-9a-f]{32}", (await with_id(service, given)).reply_headers["x-request-id"])


async def test_each_request_without_an_id_gets_another(service: Served) -> None:
    ids = [(await Client(service.api, "/health").run()).reply_headers["x-request-id"] for _ in range(3)]
    assert len(set(ids)) == 3


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/health", 200),
        ("GET", "/v1/catalog", 200),
        ("GET", "/v1/models", 401),
        ("POST", "/v1/chat/completions", 401),
        ("GET", "/nothing", 404),
        ("DELETE", "/v1/models", 405),
        ("GET", "/openapi.json", 200),
        ("GET", "/docs", 200),
    ],
)
async def test_every_response_has_the_request_id(
    service: Served, method: str, path: str, status: int
) -> None:
    client = await Client(service.api, path, method, {"X-Request-ID": "mine"}).run()
    assert (client.status, client.reply_headers["x-request-id"]) == (status, "mine")
    if status >= 400:
        assert set(client.json()) == {"detail", "error"}


async def test_what_is_not_there_is_named(service: Served) -> None:
    client = await Client(service.api, "/nothing").run()
    assert client.json()["detail"] == "Not Found: GET /nothing"
    client = await Client(service.api, "/v1/chat/completions", "GET").run()
    assert client.reply_headers["allow"] == "POST"
    # All that the path has, whichever of its routes comes first.
    client = await Client(service.api, "/openai/v1/files", "PUT").run()
    assert (client.status, client.reply_headers["allow"]) == (405, "GET, POST")


def sized(service: Served, size: int, piece: int) -> Client:
    """A valid chat request of exactly `size` bytes, in pieces."""
    client = service.chat(user="")
    (body,) = client.pieces
    body = body[:-1] + b" " * (size - len(body)) + b"}"
    assert len(body) == size
    client.pieces = [body[at : at + piece] for at in range(0, size, piece)]
    return client


@pytest.mark.parametrize("piece", [100, 4096, 100_000])
@pytest.mark.parametrize(
    ("size", "status"),
    [(LIMIT - 1, 200), (LIMIT, 200), (LIMIT + 1, 422), (8 * LIMIT, 422), (20 * LIMIT, 422)],
)
async def test_a_body_is_taken_up_to_the_limit(service: Served, size: int, status: int, piece: int) -> None:
    client = await sized(service, size, piece).run()
    assert client.status == status
    if status == 422:
        (issue,) = client.json()["detail"]
        assert (issue["type"], issue["loc"], issue["ctx"]) == (
            "request_too_large",
            ["body"],
            {"max_bytes": LIMIT},
        )
        assert str(LIMIT) in issue["msg"]
        assert client.json()["error"]["param"] is None


async def test_the_rest_of_a_body_over_the_limit_is_read_so_that_its_sender_sees_the_answer(
    service: Served,
) -> None:
    client = await sized(service, 4 * LIMIT, 100).run()
    assert client.read == len(client.pieces)


async def test_a_body_without_end_is_not_read_for_ever(service: Served) -> None:
    client = await sized(service, 100 * LIMIT, LIMIT).run()
    assert client.status == 422
    assert BodyLimitMiddleware.DISCARD_FACTOR <= client.read <= BodyLimitMiddleware.DISCARD_FACTOR + 2


async def test_a_client_that_leaves_while_its_body_is_thrown_away_is_no_error(
    service: Served, caplog: pytest.LogCaptureFixture
) -> None:
    client = sized(service, 6 * LIMIT, 1000)
    client.gone_after = 8
    await client.run()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_body_over_the_limit_needs_a_key_first(service: Served) -> None:
    client = sized(service, 2 * LIMIT, 1000)
    client.headers["Authorization"] = "Bearer wrong"
    assert (await client.run()).status == 403


async def test_a_failure_outside_of_every_route_is_the_contracts_500(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        raise ZeroDivisionError("the secret of line 17")

    client = await Client(RequestIdMiddleware(broken), "/", headers={"X-Request-ID": "find-me"}).run()
    assert (client.status, client.is_complete) == (500, True)
    assert client.json()["error"]["code"] == "internal_error"
    assert b"secret" not in client.body
    assert client.reply_headers["x-request-id"] == "find-me"
    (record,) = caplog.records
    assert "find-me" in record.getMessage() and record.exc_info is not None


async def test_a_failure_after_the_response_began_is_logged_and_adds_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def breaks_off(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ZeroDivisionError

    client = await Client(RequestIdMiddleware(breaks_off), "/").run()
    assert [message["type"] for message in client.sent] == ["http.response.start"]
    assert len(caplog.records) == 1


async def test_what_is_no_request_passes_untouched() -> None:
    seen: list[Scope] = []

    async def inner(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)

    async def nothing() -> Message:
        raise AssertionError("nobody reads")

    async def nowhere(message: Message) -> None:
        raise AssertionError("nobody sends")

    scope = {"type": "lifespan"}
    await RequestIdMiddleware(BodyLimitMiddleware(inner, 1))(scope, nothing, nowhere)
    assert seen == [{"type": "lifespan"}] and json.dumps(seen)
