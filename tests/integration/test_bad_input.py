"""Bad input over HTTP, on the real server: each case has its exact status and names its place; then all is well."""

from __future__ import annotations

import socket
from collections import Counter
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.integration.bad_requests import ALL, Bad
from tests.integration.contract_shapes import ERROR, ISSUE, mismatches

if TYPE_CHECKING:
    from tests.integration.running import Server

COMPLETIONS = "/v1/chat/completions"
GOOD = {"messages": [{"role": "user", "content": "Hello."}], "max_tokens": 1}
LONGEST_ANSWER = 20_000
SOCKET_S = 10


def ids(cases: list[Bad]) -> list[str]:
    return [f"{case.status} {case.name}" for case in cases]


def post(client: httpx.Client, case: Bad) -> httpx.Response:
    headers = {"Content-Type": case.content_type} if case.content_type else {}
    return client.post(COMPLETIONS, content=case.body, headers=headers)


@pytest.mark.parametrize("case", ALL, ids=ids(ALL))
def test_a_bad_request_is_refused_by_name(case: Bad, http: httpx.Client) -> None:
    reply = post(http, case)
    assert reply.status_code == case.status, reply.text[:1000]
    assert reply.headers["x-request-id"]
    assert mismatches(reply.json(), ERROR) == []
    assert len(reply.content) < LONGEST_ANSWER
    if case.status == 400:
        check_option(reply.json(), case.where)
    else:
        check_issues(reply.json(), case.where)


def check_option(body: dict[str, Any], option: str) -> None:
    assert isinstance(body["detail"], str)
    assert body["detail"].startswith(f"{option}: ")
    assert body["error"]["param"] == option
    assert body["error"]["code"] == "unsupported_option"


def check_issues(body: dict[str, Any], where: str) -> None:
    issues = body["detail"]
    assert isinstance(issues, list)
    assert [mismatches(issue, ISSUE) for issue in issues] == [[]] * len(issues)
    places = [".".join(str(step) for step in issue["loc"]) for issue in issues]
    # What cannot be parsed has an offset as its place, after `body`.
    at_an_offset = where == "body" and all(place.removeprefix("body.").isdecimal() for place in places)
    assert where in places or at_an_offset, places
    assert all(issue["msg"] for issue in issues)


def test_there_are_many_cases_of_each_kind() -> None:
    assert len(ALL) >= 60
    assert set(Counter(case.status for case in ALL)) == {400, 422}


def test_the_server_answers_normally_after_all_of_them(http: httpx.Client) -> None:
    """Every bad request once more, and a good one after each tenth."""
    for count, case in enumerate(ALL):
        assert post(http, case).status_code == case.status
        if count % 10 == 0:
            assert http.post(COMPLETIONS, json=GOOD).status_code == 200
    reply = http.post(COMPLETIONS, json=GOOD)
    assert reply.status_code == 200
    assert reply.json()["usage"]["completion_tokens"] == 1


def test_many_wrongs_are_told_at_once_and_within_bounds(http: httpx.Client) -> None:
    wrong = {"messages": [{"role": "no", "content": 1}] * 200, "max_tokens": 0, "temperature": 3, "stream": 1}
    reply = http.post(COMPLETIONS, json=wrong)
    assert reply.status_code == 422
    assert 4 <= len(reply.json()["detail"]) <= 20
    assert len(reply.content) < LONGEST_ANSWER


def test_a_long_value_does_not_come_back(http: httpx.Client) -> None:
    """A prompt sent in the wrong place is not copied into an error."""
    secret = "my prompt " * 1000
    for body in ({**GOOD, "max_tokens": secret}, {**GOOD, "model": secret}, {**GOOD, "stop": [secret]}):
        reply = http.post(COMPLETIONS, json=body)
        assert reply.status_code == 422
        assert len(reply.content) < 2000


def exchange(server: Server, data: bytes, *, ends: bool = False) -> bytes:
    """Send raw bytes and return what comes back until the server closes, or until a whole answer is here."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=SOCKET_S) as connection:
        connection.sendall(data)
        if ends:
            connection.shutdown(socket.SHUT_WR)
        answer = b""
        for _ in range(1000):
            piece = connection.recv(65_536)
            answer += piece
            if not piece:
                break
        return answer


def head(server: Server, *lines: str) -> bytes:
    first = [f"POST {COMPLETIONS} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {server.key}"]
    return "\r\n".join([*first, "Content-Type: application/json", *lines, "", ""]).encode("latin-1")


BODY = b'{"messages": [{"role": "user", "content": "Hello."}], "max_tokens": 1}'

BROKEN_HTTP: list[tuple[str, list[str], bytes]] = [
    ("a length and chunks", [f"Content-Length: {len(BODY)}", "Transfer-Encoding: chunked"], BODY),
    ("two lengths", [f"Content-Length: {len(BODY)}", "Content-Length: 3"], BODY),
    ("a negative length", ["Content-Length: -5"], BODY),
    ("a length that is no number", ["Content-Length: many"], BODY),
    ("a chunk size that is no number", ["Transfer-Encoding: chunked"], b"ZZ\r\n"),
    ("a NUL in a header", [f"Content-Length: {len(BODY)}", "X-Note: a\0b"], BODY),
    ("a header without a name", [": nothing", f"Content-Length: {len(BODY)}"], BODY),
]


@pytest.mark.parametrize(
    ("lines", "body"), [row[1:] for row in BROKEN_HTTP], ids=[row[0] for row in BROKEN_HTTP]
)
def test_broken_http_is_a_400_and_the_connection_ends(
    lines: list[str], body: bytes, server: Server, http: httpx.Client
) -> None:
    answer = exchange(server, head(server, *lines) + body)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert http.post(COMPLETIONS, json=GOOD).status_code == 200


def test_what_is_no_http_is_a_400(server: Server, http: httpx.Client) -> None:
    assert exchange(server, b"\x16\x03\x01\x00\xa5\x01\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    assert http.post(COMPLETIONS, json=GOOD).status_code == 200


@pytest.mark.parametrize("body", [b"", BODY[:10]], ids=["no byte of it", "ten bytes of it"])
def test_a_client_that_leaves_before_its_body_has_come_harms_nobody(
    body: bytes, server: Server, http: httpx.Client
) -> None:
    answer = exchange(server, head(server, f"Content-Length: {len(BODY)}") + body, ends=True)
    assert b" 200 " not in answer.partition(b"\r\n")[0]
    assert http.post(COMPLETIONS, json=GOOD).status_code == 200


def test_pipelined_requests_are_answered_in_order(server: Server) -> None:
    """A bad request between two good ones is answered in its place."""
    closing = head(server, f"Content-Length: {len(BODY)}", "Connection: close")
    good = head(server, f"Content-Length: {len(BODY)}")
    answer = exchange(server, good + BODY + head(server, "Content-Length: 2") + b"{}" + closing + BODY)
    statuses = [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [b"200", b"422", b"200"]


def test_a_body_in_chunks_is_read_whole(http: httpx.Client) -> None:
    reply = http.post(
        COMPLETIONS,
        content=(BODY[at : at + 7] for at in range(0, len(BODY), 7)),
        headers={"Content-Type": "application/json"},
    )
    assert reply.status_code == 200, reply.text


def test_a_body_in_chunks_is_bounded_too(http: httpx.Client) -> None:
    reply = http.post(
        COMPLETIONS,
        content=(b" " * 2**20 for _ in range(9)),
        headers={"Content-Type": "application/json"},
    )
    assert reply.status_code == 422
    assert reply.json()["detail"][0]["loc"] == ["body"]
    assert str(8 * 2**20) in reply.json()["detail"][0]["msg"]
