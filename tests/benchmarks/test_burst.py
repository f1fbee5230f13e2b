"""`benchmarks.burst` against servers that answer, refuse, break off, and are not there."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from benchmarks.burst.__main__ import arguments, measured, report
from benchmarks.burst.health import Probe
from benchmarks.burst.sending import Burst, burst, complaints
from benchmarks.load.exchange import Call, chat
from benchmarks.load.loop import Target
from benchmarks.load.machine import facts
from benchmarks.load.processes import tree
from tests.benchmarks.load.fake_server import FakeServer

SLOW_MS = 60_000
HEALTHY = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
REFUSED = b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 2\r\n%b\r\n{}"


def call(*, stream: bool = False) -> Call:
    return chat("fake", tokens=4, stream=stream)


async def sent(url: str, call: Call, *, requests: int = 20, timeout_s: float = 20) -> Burst:
    return await burst("some", Target(url, "a-key"), call, requests=requests, timeout_s=timeout_s)


@asynccontextmanager
async def answering(reply: bytes | None) -> AsyncIterator[str]:
    """A server that says `reply` to everything but /health, and closes; None: it resets the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (await reader.readuntil(b"\r\n\r\n")).startswith(b"GET /health"):
            writer.write(HEALTHY)
        elif reply is None:
            writer.transport.abort()
            return
        else:
            writer.write(reply)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize("stream", [False, True])
async def test_every_request_is_sent_at_once_and_answered(stream: bool) -> None:
    async with FakeServer(token_s=0.01).listening() as server:
        done = await sent(server.url, call(stream=stream))
    assert done.counts() == {"200": 20}
    assert complaints([done], max_health_ms=SLOW_MS) == []
    assert server.most_busy == 20
    assert server.keys == {"Bearer a-key"}
    assert done.probes and not any(probe.fault for probe in done.probes)
    assert all((answer.ttft_ms is not None) == stream for answer in done.answers)


async def test_a_refusal_that_says_when_to_come_back_is_no_fault() -> None:
    async with answering(REFUSED % b"retry-after: 3\r\n") as url:
        done = await sent(url, call())
    assert done.counts() == {"429": 20}
    assert {answer.retry_after_s for answer in done.answers} == {3}
    assert complaints([done], max_health_ms=SLOW_MS) == []


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (REFUSED % b"", "429, without Retry-After"),
        (b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n", "502, not expected"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", "200, not whole"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}", "closed"),
        (b"what?\r\n\r\n", "not HTTP"),
        (None, "reset"),
    ],
)
async def test_anything_else_is_a_fault_that_is_named(reply: bytes | None, kind: str) -> None:
    async with answering(reply) as url:
        done = await sent(url, call())
    counts = done.counts()
    # Whether a broken connection shows as reset or as closed is the kernel's choice.
    assert sum(counts.values()) == 20 and counts.keys() <= {kind, "reset", "closed"}
    assert complaints([done], max_health_ms=SLOW_MS)[0].startswith("some: ")


@pytest.mark.parametrize("omits", ["usage", "done", "everything"])
async def test_a_stream_that_broke_off_is_not_whole(omits: str) -> None:
    async with FakeServer(omits=omits).listening() as server:
        done = await sent(server.url, call(stream=True))
    assert done.counts() == {"200, not whole": 20}


async def test_a_server_that_is_not_there_refuses_and_one_that_hangs_gives_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    refused = await sent(url, call())
    assert refused.counts() == {"refused": 20}
    assert "/health failed" in complaints([refused], max_health_ms=SLOW_MS)[1]
    async with FakeServer(token_s=0.25).listening() as server:
        assert (await sent(server.url, call(), timeout_s=0.2)).counts() == {"no answer": 20}


def test_a_slow_probe_is_a_fault() -> None:
    probes = (Probe(0.0, 3.0, 0.0, ""), Probe(0.1, 1500.0, 0.0, ""))
    done = Burst("json", (), probes, seconds=1.0, connecting_s=0.1)
    assert complaints([done], max_health_ms=1000) == ["json: /health took 1500 ms at 0.1 s"]


async def test_a_report_has_every_answer_every_probe_facts_and_a_plot(tmp_path: Path) -> None:
    async with FakeServer().listening() as server:
        words = [
            "--requests",
            "10",
            "--kinds",
            "json,sse,long",
            "--tokens",
            "4",
            "--model",
            "fake",
            "--key",
            "k",
        ]
        options = arguments([*words, "--url", server.url])
        seen = await measured(options, Target(server.url, "k"), partial(tree, os.getpid()))
    as_json, as_text, plot = report(options, facts("benchmarks.burst"), seen).write(tmp_path)
    body = json.loads(as_json.read_text())
    assert [len(one["answers"]) for one in body["bursts"]] == [10, 10, 10]
    # A burst that is over at once is too short for a look at the processes.
    assert body["facts"]["commit"] and "looks" in body
    assert "| long | 10 | 10 of 200 |" in as_text.read_text()
    assert "Every request was answered" in as_text.read_text()
    assert plot.read_bytes().startswith(b"\x89PNG")
    # The longest prompts nearly fill the context, as the server counts.
    words_asked = max(len(request["messages"][0]["content"].split()) for request in server.requests)
    assert 0.85 * server.context_length < words_asked <= server.context_length


def test_an_unknown_kind_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        arguments(["--kinds", "json,yaml"])
    assert "'yaml' is none of json, sse, long" in capsys.readouterr().err
