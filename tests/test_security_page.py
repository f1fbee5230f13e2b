"""docs/security.md is what an attacker finds: each cell of its table of ports is attacked here, on the real port, and
each test that it names for other threats exists."""

from __future__ import annotations

import ast
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from serve.cluster.replicas import port as replica
from serve.cluster.replicas.port import REFUSAL, TOKEN_BYTES
from serve.config.server_settings import OpsSettings, ServerSettings
from serve.http.server import bounds
from serve.http.server.bounds import OPS_CONNECTIONS, OPS_CONNECTIONS_PER_ADDRESS
from serve.http.server.server import MAX_HEADER_BYTES
from serve.ops.app import MAX_BODY_BYTES
from tests.attacked_ports import CONNECTIONS, Attacked, ops_port, public_port, replica_port
from tests.serve.http.serving import detail, eventually

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/security.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/.-]+\.py)::(\w+)`", PAGE)))
PORTS = {"public port": public_port, "ops port": ops_port, "replica's port": replica_port}
LOCALHOST = b" HTTP/1.1\r\nHost: localhost\r\n"
ENDLESS = 4 * 2**20


def table(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without the rule."""
    lines = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0].splitlines()
    rows = [
        [cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines if line.startswith("|")
    ]
    return [row for row in rows if not row[0].startswith("---")]


def claims() -> Iterator[tuple[str, str]]:
    """Each attack with each port on which the page says that it fails."""
    (_, *ports), *rows = table("Ports")
    for attack, *cells in rows:
        yield from (
            (attack, port) for port, cell in zip(ports, cells, strict=True) if port in PORTS and cell != "—"
        )


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Attacked]]:
    with ExitStack() as opened, pytest.MonkeyPatch.context() as patched:
        patched.setattr(replica, "TOKEN_S", 1.0)
        patched.setattr(replica, "STRANGERS", CONNECTIONS)
        patched.setattr(bounds, "OPS_CONNECTIONS", CONNECTIONS)
        yield {
            name: opened.enter_context(port(tmp_path_factory.mktemp("port"))) for name, port in PORTS.items()
        }


def status_of(reply: bytes) -> int:
    """0 where the connection was cut: a client that goes on sending may not see the answer."""
    return detail(reply)[0] if reply else 0


def send_for_ever(port: Attacked, start: bytes, piece: bytes) -> int:
    """The answer; the port must have had enough long before `ENDLESS`, and what the kernel takes besides."""
    with port.connect() as client:
        try:
            client.send(start)
            assert client.send_until_closed(piece, at_most=8 * ENDLESS) < 8 * ENDLESS
            return status_of(client.reply())
        except ConnectionError:
            return 0


def endless_headers(port: Attacked) -> None:
    assert send_for_ever(port, port.get + LOCALHOST, b"a: b\r\n" * 1000) in (431, 0)
    with port.connect() as client:
        client.send(port.get + LOCALHOST + b"a: " + bytes(MAX_HEADER_BYTES).replace(b"\0", b"x"))
        assert status_of(client.reply()) == 431


def endless_trailers(port: Attacked) -> None:
    chunked = port.get.replace(b"GET", b"POST") + LOCALHOST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n"
    # Answered already, where nothing reads the body: then the connection ends with the trailers' bound.
    assert send_for_ever(port, chunked, b"a: b\r\n" * 1000) in (400, 405, 0)


def endless_body(port: Attacked) -> None:
    head = port.post + LOCALHOST + b"Content-Length: 100000000000\r\n\r\n"
    with port.connect() as client:
        client.send(head)
        assert client.send_until_closed(bytes(2**16), at_most=2**28) < 2**28


def slow_request(port: Attacked) -> None:
    if port.name == "replica":
        with port.connect() as client:
            client.send(b"f" * (TOKEN_BYTES - 1))
            assert client.reply() == b""
        return
    with port.connect() as head, port.connect() as body:
        head.send(port.get + LOCALHOST)
        body.send(port.post + LOCALHOST + b"Content-Length: 9\r\n\r\nx")
        assert status_of(head.reply()) == 408
        # Without a key the answer comes before the body is read, and the connection ends all the same.
        assert status_of(body.reply()) in (408, 401)


def silent_connections(port: Attacked) -> None:
    with ExitStack() as opened:
        silent = [opened.enter_context(port.connect()) for _ in range(3 * CONNECTIONS)]
        for one in silent[::2]:
            one.send(b"x" if port.name == "replica" else port.get)
        assert port.serves()
        # The oldest went for newer ones, and the newest go in time.
        for one in (silent[0], silent[-1]):
            one.reply()


def unread_replies(port: Attacked) -> None:
    with ExitStack() as opened:
        greedy = [opened.enter_context(port.connect()) for _ in range(CONNECTIONS)]
        for one in greedy:
            one.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            # One that was late to read may be cut before the last one comes.
            with suppress(ConnectionError):
                one.send((port.large + LOCALHOST + b"\r\n") * 60)
                one.socket.recv(9)
        eventually(port.serves)


def wrong_keys(port: Attacked) -> None:
    if port.name == "replica":
        for said in (
            b"f" * TOKEN_BYTES + bytes(4),
            bytes(64),
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n  ",
        ):
            with port.connect() as client:
                client.send(said)
                assert client.reply() == REFUSAL
        return
    for key in (b"", b"Authorization: Bearer pith_admin_x\r\n", b"Authorization: Basic eDp5\r\n"):
        with port.connect() as client:
            client.send(b"GET /admin/v1/workspaces" + LOCALHOST + key + b"Connection: close\r\n\r\n")
            assert status_of(client.reply()) == 401


def another_host(port: Attacked) -> None:
    for path in (b"/", b"/metrics", b"/docs", b"/openapi.json", b"/v1/catalog", b"/admin/v1/workspaces"):
        for host in (b"evil.example", b"localhost.evil.example:8000", b"10.0.0.1"):
            with port.connect() as client:
                client.send(b"GET " + path + b" HTTP/1.1\r\nConnection: close\r\nHost: " + host + b"\r\n\r\n")
                assert status_of(client.reply()) == 421


ATTACKS: dict[str, Callable[[Attacked], None]] = {
    "headers that never end": endless_headers,
    "trailers and chunks that never end": endless_trailers,
    "a body that never ends": endless_body,
    "a request that comes slowly": slow_request,
    "silent connections, however many": silent_connections,
    "replies that are not read": unread_replies,
    "a wrong key or token": wrong_keys,
    "a page of another site that points its own name here": another_host,
}


@pytest.mark.parametrize(("attack", "port"), list(claims()))
def test_a_bound_of_a_port_holds_and_who_may_use_it_is_served(
    attack: str, port: str, ports: dict[str, Attacked]
) -> None:
    ATTACKS[attack](ports[port])
    assert ports[port].serves()


def test_the_page_claims_what_is_attacked_and_nothing_else() -> None:
    (_, *columns), *rows = table("Ports")
    assert {*PORTS} <= {*columns}
    assert [row[0] for row in rows] == [*ATTACKS]


@pytest.mark.parametrize(
    "figure",
    [
        f"{MAX_HEADER_BYTES // 1024} KiB",
        f"{MAX_BODY_BYTES // 1024} KiB",
        f"{OPS_CONNECTIONS} connections, {OPS_CONNECTIONS_PER_ADDRESS} of an address",
        f"{replica.STRANGERS:,} of them",
        f"{replica.TOKEN_S:g} s",
    ],
)
def test_the_figures_of_the_table_are_the_codes(figure: str) -> None:
    assert figure in PAGE.split("## Ports\n")[1].split("\n## ")[0]


def test_names_are_checked_where_the_page_says_so_by_default() -> None:
    for section in (ServerSettings(), OpsSettings()):
        assert section.host == "127.0.0.1" and section.allowed_hosts == []


@pytest.mark.parametrize(("path", "name"), NAMED, ids=[name for _, name in NAMED])
def test_a_test_that_the_page_names_exists(path: str, name: str) -> None:
    tree = ast.parse((ROOT / path).read_text())
    assert name in {
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_every_threat_of_the_table_has_a_test() -> None:
    _, *rows = table("Other threats")
    assert len(rows) > 15
    assert not [row for row in rows if "::" not in row[-1] and "tests/" not in row[-1]]


@pytest.mark.parametrize("secret", ["ops.admin_key_file", "demo.key_path", "tracing.headers_file", "pepper"])
def test_each_file_with_a_secret_is_on_the_page_of_rotation(secret: str) -> None:
    text = (ROOT / "docs/operations/rotation.md").read_text().split("\n## ")[0]
    assert secret in text


def test_whoever_finds_a_weakness_is_told_where_to_say_so_without_an_invented_address() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    assert "docs/security.md" in text and "Reporting" in text and "Supported" in text
    assert not re.search(r"\S+@\S+\.\w+", text)
