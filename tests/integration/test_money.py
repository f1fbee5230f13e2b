"""Money on the real engine: what is held of a prompt, what a default limit comes to, and who pays for a prefill."""

from __future__ import annotations

import contextlib
import secrets
import socket
import sqlite3
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx
import orjson
import pytest

from tests.integration.running import wait_for

if TYPE_CHECKING:
    from tests.integration.running import Server

COMPLETIONS = "/v1/chat/completions"
CONTEXT = 4096
NANO = 10**9
SOON_S = 10


@dataclass(frozen=True)
class Payer:
    """A workspace of one test, and its books."""

    server: Server
    name: str
    key: str

    def client(self) -> httpx.Client:
        return self.server.client(key=self.key)

    def rows(self, query: str) -> list[dict[str, Any]]:
        ledger = f"file:{self.server.state_dir}/pith.db?mode=ro"
        with contextlib.closing(sqlite3.connect(ledger, uri=True, timeout=120)) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(query, {"name": self.name})]

    def held(self) -> int:
        (row,) = self.rows("SELECT held_nano_usd FROM workspaces WHERE name = :name")
        return int(row["held_nano_usd"])

    def events(self) -> list[dict[str, Any]]:
        return self.rows(
            "SELECT e.* FROM usage_events e JOIN workspaces w ON w.id = e.workspace_id WHERE w.name = :name"
        )


@pytest.fixture
def payer(server: Server) -> Payer:
    name = f"money-{secrets.token_hex(4)}"
    return Payer(server, name, server.new_key(name))


@pytest.fixture(scope="module")
def price(server: Server) -> dict[str, Any]:
    model: dict[str, Any] = httpx.get(f"{server.url}/v1/catalog").json()["models"][0]
    return model


def ask(text: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **fields}


@pytest.fixture(scope="module")
def words_that_fill(server: Server) -> Any:
    """A text for which the prompt has exactly so many tokens."""

    def tokens(count: int) -> int:
        with server.client() as http:
            reply = http.post(COMPLETIONS, json=ask(" a" * count, max_tokens=1))
        return int(reply.json()["usage"]["prompt_tokens"])

    one, other = tokens(100), tokens(200)
    assert other - one == 100, "each of these words must be one token"
    return lambda prompt_tokens: " a" * (prompt_tokens - one + 100)


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
@pytest.mark.parametrize("left", [1, 77])
def test_a_reply_without_a_limit_gets_what_its_prompt_leaves(
    payer: Payer, words_that_fill: Any, stream: bool, left: int
) -> None:
    text = words_that_fill(CONTEXT - left)
    with payer.client() as http:
        reply = http.post(COMPLETIONS, json=ask(text, stream=stream, ignore_eos=True))
    assert reply.status_code == 200, reply.text
    (event,) = payer.events()
    assert (event["prompt_tokens"], event["completion_tokens"]) == (CONTEXT - left, left)


def test_a_reply_without_a_limit_gets_512_tokens_where_there_is_room(payer: Payer) -> None:
    with payer.client() as http:
        reply = http.post(COMPLETIONS, json=ask("hi", ignore_eos=True))
    assert reply.json()["usage"]["completion_tokens"] == 512


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_more_than_the_prompt_leaves_is_refused_where_it_was_asked_for(
    payer: Payer, words_that_fill: Any, field: str
) -> None:
    with payer.client() as http:
        reply = http.post(COMPLETIONS, json=ask(words_that_fill(CONTEXT - 77), **{field: 78}))
    assert (reply.status_code, reply.json()["error"]["code"]) == (422, "rejected_by_engine")


def test_a_prompt_that_leaves_nothing_is_refused_for_its_length(payer: Payer, words_that_fill: Any) -> None:
    with payer.client() as http:
        reply = http.post(COMPLETIONS, json=ask(words_that_fill(CONTEXT)))
    assert (reply.status_code, reply.json()["error"]["param"]) == (422, "messages"), reply.text
    assert payer.events() == [] and payer.held() == 0


def test_of_a_plain_prompt_little_more_than_its_bytes_is_held(
    server: Server, payer: Payer, price: dict[str, Any]
) -> None:
    text, most = "how is the weather? \U0001d160" * 3, 100
    body = ask(text, ignore_eos=True, max_tokens=most)
    with payer.client() as http:
        needed = http.post(COMPLETIONS, json=body).json()["usage"]["prompt_tokens"]

    def status_with_money_for(prompt_tokens: int) -> int:
        """A workspace's limit says what was held: more is refused."""
        micro_usd = prompt_tokens * price["input_price_per_mtok"] + most * price["output_price_per_mtok"]
        name = f"money-{secrets.token_hex(4)}"
        with server.client(key=server.new_key(name, limit_usd=f"{micro_usd / 1e6:.9f}")) as http:
            return http.post(COMPLETIONS, json=body).status_code

    assert status_with_money_for(needed - 1) == 402
    assert status_with_money_for(len(text.encode()) + 100) == 200


@pytest.mark.parametrize("text", ["\U0001d160" * 60, "ﷺ" * 60, "\u0000\u0001" * 60, "é" * 90])
def test_no_prompt_has_more_tokens_than_were_held(payer: Payer, text: str) -> None:
    before = exceeded(payer.server)
    with payer.client() as http:
        assert http.post(COMPLETIONS, json=ask(text, max_tokens=4)).status_code == 200
        parts = [{"type": "text", "text": text}, {"type": "text", "text": ""}] * 20
        several = [{"role": role, "content": parts} for role in ("system", "user", "assistant", "user")]
        reply = http.post(COMPLETIONS, json={"messages": several, "max_tokens": 4})
    assert reply.status_code in (200, 422), reply.text
    assert exceeded(payer.server) == before == 0


def exceeded(server: Server) -> float:
    page = httpx.get(f"http://127.0.0.1:{server.ops_port}/metrics").text
    lines = [line for line in page.splitlines() if line.startswith("pith_chat_bound_exceeded_total")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


@contextlib.contextmanager
def sent(payer: Payer, body: dict[str, Any]) -> Iterator[None]:
    """A request whose client leaves, by a reset, when the block ends."""
    raw = orjson.dumps(body)
    head = (
        f"POST {COMPLETIONS} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {payer.key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(raw)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", payer.server.port)) as client:
        client.sendall(head.encode() + raw)
        yield


def test_who_leaves_while_the_engine_reads_the_prompt_pays_for_the_prompt(
    payer: Payer, words_that_fill: Any
) -> None:
    """The moment between the prompt's beginning and the first token is looked for by halving."""
    soonest, latest = 0.0, 2.0
    text = words_that_fill(CONTEXT - 200)
    seen: list[dict[str, Any]] = []
    for _ in range(25):
        known = len(payer.events())
        delay_s = (soonest + latest) / 2
        # Unlike any before it: what is cached needs no reading.
        body = ask(f"{uuid.uuid4()} {text[:-200]}", stream=True, max_tokens=100, ignore_eos=True)
        with sent(payer, body), contextlib.suppress(AssertionError):
            wait_for(lambda: False, timeout_s=delay_s, what="the client has had enough", every_s=delay_s)
        wait_for(lambda: payer.held() == 0, timeout_s=SOON_S, what="nothing is held")
        seen = payer.events()[known:]
        if seen and seen[0]["completion_tokens"] == 0:
            break
        soonest, latest = (soonest, delay_s) if seen else (delay_s, latest)
    assert seen and seen[0]["completion_tokens"] == 0, (soonest, latest)
    assert seen[0]["outcome"] == "disconnected" and seen[0]["prompt_tokens"] > CONTEXT - 500
    assert seen[0]["cost_nano_usd"] > 0


def test_the_choices_of_a_reply_whose_client_leaves_are_all_billed(payer: Payer) -> None:
    """Each ends at its own length, most of them between two looks at the engine."""
    several = {"n": 8, "temperature": 1.5, "seed": 11, "max_tokens": 40}
    with payer.client() as http:
        whole = http.post(COMPLETIONS, json=ask("tell me", **several)).json()["usage"]["completion_tokens"]
    assert whole > 40
    (event,) = payer.events()
    assert event["completion_tokens"] == whole
