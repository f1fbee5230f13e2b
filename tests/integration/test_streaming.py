"""Streams as their bytes, and what a client that leaves costs: what was generated, once, and nothing stays held."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import sqlite3
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

import httpx
import psutil
import pytest

from tests.integration.running import Server, wait_for

ASK = [{"role": "user", "content": "Tell me about the river."}]
LONG = 3500
REPORTED_WITHIN_S = 1.0
# A share of a core; and what an engine may take of one after its client has left: the whole reply takes more.
BUSY, MOST_SPENT_S = 0.15, 2
DONE = b"data: [DONE]\n\n"
BEGINNING = b"data: {"


def body(**options: Any) -> dict[str, Any]:
    return {"messages": ASK, "stream": True, "ignore_eos": True, **options}


@dataclass(frozen=True)
class Account:
    """A workspace of this file alone, so that nobody else's requests are in its books."""

    server: Server
    key: str
    workspace_id: str

    def rows(self, query: str, *values: Any) -> list[dict[str, Any]]:
        ledger = f"file:{self.server.state_dir}/pith.db?mode=ro"
        with contextlib.closing(sqlite3.connect(ledger, uri=True, timeout=120)) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(query, values)]

    def events(self, request_id: str) -> list[dict[str, Any]]:
        return self.rows(
            "SELECT * FROM usage_events WHERE workspace_id = ? AND request_id = ?",
            self.workspace_id,
            request_id,
        )

    def holds(self) -> int:
        return len(self.rows("SELECT 1 FROM holds WHERE workspace_id = ?", self.workspace_id))

    def books(self) -> dict[str, Any]:
        (row,) = self.rows("SELECT * FROM workspaces WHERE id = ?", self.workspace_id)
        return row

    def client(self) -> httpx.Client:
        return httpx.Client(
            base_url=self.server.url, headers={"Authorization": f"Bearer {self.key}"}, timeout=60
        )


@pytest.fixture(scope="module")
def account(server: Server) -> Account:
    name = f"streams-{uuid.uuid4().hex[:12]}"
    key = server.new_key(name)
    found = Account(server, key, "").rows("SELECT id FROM workspaces WHERE name = ?", name)
    return Account(server, key, found[0]["id"])


@pytest.fixture(scope="module")
def price(server: Server) -> dict[str, Any]:
    catalog: dict[str, Any] = httpx.get(f"{server.url}/v1/catalog").json()
    return next(model for model in catalog["models"] if model["is_default"])


@pytest.fixture
def request_id() -> str:
    return f"stream-{uuid.uuid4().hex}"


def events_of(raw: bytes) -> list[dict[str, Any]]:
    """The JSON of each event before the terminator, if the bytes have a stream's exact shape."""
    assert raw.endswith(DONE)
    parts = raw.removesuffix(DONE).split(b"\n\n")
    assert parts.pop() == b""
    for part in parts:
        assert part.startswith(BEGINNING)
        assert b"\n" not in part
        assert b"\r" not in part
    return [json.loads(part.removeprefix(b"data: ")) for part in parts]


def nano_usd(price: dict[str, Any], prompt_tokens: int, completion_tokens: int) -> int:
    """The contract's cost: the greater of the tokens' price and the minimum."""
    tokens = prompt_tokens * Decimal(str(price["input_price_per_mtok"]))
    tokens += completion_tokens * Decimal(str(price["output_price_per_mtok"]))
    subtotal = (tokens * 1000).quantize(Decimal(1), ROUND_HALF_EVEN)
    return int(max(subtotal, Decimal(str(price["minimum_request_charge_usd"])) * 10**9))


def only_event(account: Account, request_id: str) -> dict[str, Any]:
    events = wait_for(lambda: account.events(request_id), what=f"a usage event of {request_id}")
    assert len(events) == 1
    return dict(events[0])


@contextlib.contextmanager
def connection(account: Account, request: dict[str, Any], request_id: str) -> Iterator[socket.socket]:
    """A connection on which the request was sent and nothing is read yet; it is closed at the end."""
    content = json.dumps(request).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {account.key}\r\nX-Request-ID: {request_id}\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", account.server.port), timeout=60) as opened:
        opened.sendall(head.encode() + content)
        yield opened


def read_until(opened: socket.socket, size: int) -> bytes:
    """At least `size` bytes of the response, or all of it."""
    read = b""
    while len(read) < size and not read.endswith(b"0\r\n\r\n"):
        piece = opened.recv(min(4096, size - len(read)))
        if not piece:
            break
        read += piece
    return read


class TestShape:
    def test_a_stream_is_whole_json_events_and_then_done(self, account: Account) -> None:
        with account.client() as client:
            reply = client.post("/v1/chat/completions", json=body(max_tokens=20))
        assert reply.headers["content-type"].split(";")[0] == "text/event-stream"
        assert reply.headers["x-service-metering-status"] == "persisted"
        events = events_of(reply.content)
        assert len(events) > 3
        for name in ("id", "object", "created", "model"):
            assert len({event[name] for event in events}) == 1, name
        assert events[0]["object"] == "chat.completion.chunk"
        assert events[0]["choices"][0]["delta"]["role"] == "assistant"

    @pytest.mark.parametrize("options", [{}, {"stream_options": {"include_usage": True}}])
    def test_only_the_last_event_has_usage_and_it_has_no_choices(
        self, account: Account, options: dict[str, Any]
    ) -> None:
        with account.client() as client:
            events = events_of(
                client.post("/v1/chat/completions", json=body(max_tokens=9, **options)).content
            )
        *others, last = events
        assert last["choices"] == []
        assert last["usage"]["completion_tokens"] == 9
        assert set(last["service"]) == {"billing", "metering"}
        assert all(event["choices"] and not event.get("usage") for event in others)
        assert others[-1]["choices"][0]["finish_reason"] == "length"

    def test_events_tell_nothing_in_the_engines_own_fields(self, account: Account) -> None:
        with account.client() as client:
            events = events_of(client.post("/v1/chat/completions", json=body(max_tokens=3)).content)
        known = {"id", "object", "created", "model", "choices", "usage", "service", "system_fingerprint"}
        assert all(told(event) <= known for event in events)
        choices = [choice for event in events for choice in event["choices"]]
        assert all(told(choice) <= {"index", "delta", "finish_reason", "logprobs"} for choice in choices)

    def test_usage_of_each_event_grows_to_the_last_when_asked_for(self, account: Account) -> None:
        options = {"include_usage": True, "continuous_usage_stats": True}
        with account.client() as client:
            reply = client.post("/v1/chat/completions", json=body(max_tokens=9, stream_options=options))
        usages = [event["usage"] for event in events_of(reply.content)]
        counts = [usage["completion_tokens"] for usage in usages]
        assert counts == sorted(counts)
        assert counts[0] <= 1
        assert counts[-1] == 9
        assert all(usage["prompt_tokens_details"] == {"cached_tokens": 0} for usage in usages)

    def test_the_first_token_comes_at_once_and_later_ones_travel_together(self, account: Account) -> None:
        arrivals: list[int] = []
        with (
            account.client() as client,
            client.stream("POST", "/v1/chat/completions", json=body(max_tokens=300)) as reply,
        ):
            for piece in reply.iter_raw():
                arrivals.append(piece.count(BEGINNING))
        # The role, the token, and what the engine made while the first was on its way: it waited for no others.
        assert arrivals[0] <= 20
        # How many do hangs on how fast a busy machine makes them.
        assert max(arrivals[1:]) > 1, "the tokens came one by one"
        assert len(arrivals) > 2, "the tokens came all at once"


class TestLedger:
    def test_the_last_event_says_what_the_ledger_says(
        self, account: Account, price: dict[str, Any], request_id: str
    ) -> None:
        with account.client() as client:
            reply = client.post(
                "/v1/chat/completions", json=body(max_tokens=90), headers={"X-Request-ID": request_id}
            )
        last = events_of(reply.content)[-1]
        (row,) = account.events(request_id)
        billing = last["service"]["billing"]
        assert row["outcome"] == "completed"
        assert row["stream"] == 1
        assert last["usage"] == {
            "prompt_tokens": row["prompt_tokens"],
            "completion_tokens": row["completion_tokens"],
            "total_tokens": row["prompt_tokens"] + row["completion_tokens"],
            "prompt_tokens_details": {"cached_tokens": row["cached_tokens"]},
        }
        assert billing["request_cost_usd"] == row["cost_nano_usd"] / 1e9
        assert billing["minimum_applied"] == bool(row["minimum_applied"])
        assert row["cost_nano_usd"] == nano_usd(price, row["prompt_tokens"], row["completion_tokens"])
        assert last["service"]["metering"] == {"persisted": True, "status": "persisted"}
        assert account.holds() == 0

    @pytest.mark.parametrize("n", [1, 2])
    def test_cached_tokens_are_what_was_cached_before_the_request(
        self, account: Account, request_id: str, n: int
    ) -> None:
        """Of two choices, the second finds what the first has just put there."""
        options = {"include_usage": True, "continuous_usage_stats": True}
        prompt = [{"role": "user", "content": f"{uuid.uuid4().hex} " + "over the river " * 120}]
        asked = body(messages=prompt, max_tokens=15, n=n, temperature=1, stream_options=options)
        found = []
        for number in ("first", "second"):
            id = f"{request_id}-{number}"
            with account.client() as client:
                reply = client.post("/v1/chat/completions", json=asked, headers={"X-Request-ID": id})
            usages = [event["usage"] for event in events_of(reply.content)]
            (row,) = account.events(id)
            assert usages[-1]["prompt_tokens_details"] == {"cached_tokens": row["cached_tokens"]}
            told = [usage["prompt_tokens_details"]["cached_tokens"] for usage in usages]
            assert told == sorted(told)
            found.append(row["cached_tokens"])
        cold, warm = found
        assert cold == 0
        assert row["prompt_tokens"] / 2 < warm < row["prompt_tokens"]

    def test_two_choices_are_summed(self, account: Account, request_id: str) -> None:
        with account.client() as client:
            reply = client.post(
                "/v1/chat/completions",
                json=body(max_tokens=15, n=2, temperature=1),
                headers={"X-Request-ID": request_id},
            )
        last = events_of(reply.content)[-1]
        (row,) = account.events(request_id)
        assert last["usage"]["completion_tokens"] == row["completion_tokens"] == 2 * 15
        assert last["usage"]["prompt_tokens"] == row["prompt_tokens"]


class TestLeaving:
    @pytest.mark.parametrize("choices", [1, 2])
    def test_a_stream_whose_client_leaves_is_billed_for_what_was_generated(
        self, account: Account, price: dict[str, Any], request_id: str, choices: int
    ) -> None:
        options = {"include_usage": True, "continuous_usage_stats": True}
        request = body(max_tokens=LONG // choices, stream_options=options, n=choices, temperature=1)
        seen: Counter[int] = Counter()
        with (
            account.client() as client,
            client.stream(
                "POST", "/v1/chat/completions", json=request, headers={"X-Request-ID": request_id}
            ) as reply,
        ):
            for line in reply.iter_lines():
                event = json.loads(line.removeprefix("data: ")) if line else {"choices": []}
                for choice in event["choices"]:
                    seen[choice["index"]] = event["usage"]["completion_tokens"]
                if len(seen) == choices and min(seen.values()) >= 20:
                    break
        row = only_event(account, request_id)
        assert row["outcome"] == "disconnected"
        assert sum(seen.values()) <= row["completion_tokens"] < LONG / 2
        assert row["cost_nano_usd"] == nano_usd(price, row["prompt_tokens"], row["completion_tokens"])
        wait_for(lambda: account.holds() == 0, what="no hold is open")

    def test_a_json_reply_whose_client_leaves_is_billed_for_what_was_generated(
        self, account: Account, price: dict[str, Any], request_id: str
    ) -> None:
        with connection(account, body(max_tokens=LONG, stream=False), request_id):
            wait_for(account.holds, what="the request is held")
            # Another stream is the clock: while it was told these tokens, the engine made as many of the reply.
            with account.client() as client:
                client.post("/v1/chat/completions", json=body(max_tokens=150)).raise_for_status()
        row = only_event(account, request_id)
        assert row["outcome"] == "disconnected"
        assert row["stream"] == 0
        # Progress of a JSON reply is reported a few times a second.
        assert 50 <= row["completion_tokens"] < LONG / 2
        assert row["prompt_tokens"] > 0
        assert row["cost_nano_usd"] == nano_usd(price, row["prompt_tokens"], row["completion_tokens"])
        wait_for(lambda: account.holds() == 0, what="no hold is open")

    @pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
    def test_the_engine_goes_idle_once_its_client_has_left(
        self, account: Account, request_id: str, stream: bool
    ) -> None:
        """The ledger shows what the service did; only the engine's own time shows that it stopped working."""
        engines = account.server.engine_processes()
        began = time.monotonic()
        with connection(account, body(max_tokens=LONG, stream=stream), request_id):
            engine = wait_for(
                lambda: next((each for each in engines if busy(each) > BUSY), None),
                what="one works",
            )
            # A reply that is not streamed tells its usage now and then; before that, there is nothing to bill.
            told = lambda: time.monotonic() - began > REPORTED_WITHIN_S  # noqa: E731
            wait_for(told, what="its usage was reported")
        before_s = spent_s(engine)
        wait_for(lambda: busy(engine) < BUSY, what="the engine is idle")
        assert spent_s(engine) - before_s < MOST_SPENT_S
        only_event(account, request_id)

    def test_clients_that_leave_at_any_moment_are_billed_at_most_once_and_leave_no_hold(
        self, account: Account, price: dict[str, Any]
    ) -> None:
        chance = random.Random(20)
        # Bytes to read before leaving; the first two leave a JSON reply, which has none until its end.
        sizes = [0, 0, 0, 0, 1, *(chance.randrange(300, 40_000) for _ in range(15))]
        streams = [False, False, *[True] * 18]
        names = [f"leaver-{uuid.uuid4().hex}" for _ in sizes]

        def leave(name: str, size: int, stream: bool) -> int:
            with connection(account, body(max_tokens=LONG, stream=stream), name) as opened:
                return read_until(opened, size).count(b'"delta":{"content":')

        with ThreadPoolExecutor(len(sizes)) as pool:
            seen = list(pool.map(leave, names, sizes, streams))
        wait_for(lambda: account.holds() == 0, what="no hold is open")
        # What the server had not yet read when its client left is done with by the time that a later one is.
        with account.client() as client:
            client.post("/v1/chat/completions", json=body(max_tokens=2)).raise_for_status()
        wait_for(lambda: account.holds() == 0, what="no hold is open")
        for name, tokens in zip(names, seen, strict=True):
            events = account.events(name)
            assert len(events) == 1 if tokens else len(events) <= 1, name
            for row in events:
                assert row["outcome"] == "disconnected"
                assert tokens <= row["completion_tokens"] < LONG
                assert row["cost_nano_usd"] == nano_usd(price, row["prompt_tokens"], row["completion_tokens"])

    def test_the_books_of_the_workspace_are_the_sum_of_its_events(self, account: Account) -> None:
        wait_for(lambda: account.holds() == 0, what="no hold is open")
        events = account.rows(
            "SELECT cost_nano_usd FROM usage_events WHERE workspace_id = ?", account.workspace_id
        )
        assert account.books()["held_nano_usd"] == 0
        assert account.books()["posted_nano_usd"] == sum(event["cost_nano_usd"] for event in events)


def told(fields: dict[str, Any]) -> set[str]:
    """The fields that say something."""
    return {name for name, value in fields.items() if value is not None}


def spent_s(process: psutil.Process) -> float:
    """Of a processor."""
    spent = process.cpu_times()
    return float(spent.user + spent.system)


def busy(process: psutil.Process) -> float:
    """The share of a core that a process used over a short while; an idle model's engine may end meanwhile."""
    try:
        return float(process.cpu_percent(interval=0.2)) / 100
    except psutil.NoSuchProcess:
        return 0.0
