"""A reply in pieces, and one that works while it is sent, as the raw messages that leave; and fresh ids."""

from __future__ import annotations

import asyncio
import logging
import re
import subprocess
import sys

import pytest
from starlette.responses import PlainTextResponse, Response
from starlette.types import Message, Scope, Send

from serve.http.middleware import IDS_PER_DRAW, fresh_id
from serve.http.replies import EVENTS, NDJSON, Client, StreamedResponse, WorkingReply

logger = logging.getLogger("pith.test")
SCOPE: Scope = {"type": "http"}


class Wire:
    """A fake connection whose client leaves when `gone` is set."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.gone = asyncio.Event()

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    async def receive(self) -> Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}


@pytest.mark.parametrize("content_type", [EVENTS, NDJSON])
async def test_nothing_leaves_before_the_start_and_no_cache_keeps_what_does(content_type: str) -> None:
    wire = Wire()
    stream = StreamedResponse(wire.send, content_type)
    assert not stream.started and wire.sent == []
    await stream.start({"X-Ratelimit": "7"})
    assert stream.started
    await stream.send(b"one\n")
    await stream.end(b"two\n")
    head, one, two = wire.sent
    assert (head["status"], head["headers"]) == (
        200,
        [
            (b"content-type", content_type.encode()),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
            (b"x-ratelimit", b"7"),
        ],
    )
    assert (one["body"], one["more_body"]) == (b"one\n", True)
    assert (two["body"], two["more_body"]) == (b"two\n", False)


class Answer(WorkingReply):
    """Answers when it may, itself or by the response that it gives."""

    def __init__(self, *, streams: bool) -> None:
        super().__init__("find-me", logger)
        self.may_go_on = asyncio.Event()
        self.client: Client | None = None
        self._streams = streams

    async def work(self, send: Send, client: Client) -> Response | None:
        self.client = client
        await self.may_go_on.wait()
        if not self._streams:
            return PlainTextResponse("done")
        stream = StreamedResponse(send, NDJSON)
        await stream.start({})
        await stream.end(b"done")
        return None


@pytest.mark.parametrize("streams", [False, True])
async def test_the_answer_is_sent_once(streams: bool) -> None:
    wire, answer = Wire(), Answer(streams=streams)
    answer.may_go_on.set()
    await answer(SCOPE, wire.receive, wire.send)
    start, body = wire.sent
    assert (start["type"], body["body"]) == ("http.response.start", b"done")


@pytest.mark.parametrize("streams", [False, True])
async def test_a_client_that_leaves_ends_the_work_and_is_noted(
    streams: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    wire, answer = Wire(), Answer(streams=streams)
    running = asyncio.create_task(answer(SCOPE, wire.receive, wire.send))
    await asyncio.sleep(0)
    wire.gone.set()
    await running
    assert wire.sent == [] and answer.client is not None and answer.client.gone
    assert caplog.messages == ["request find-me: the client left"]
    assert {record.name for record in caplog.records} == {"pith.test"}


def test_ids_are_32_hexadecimal_digits_and_all_different() -> None:
    ids = [fresh_id() for _ in range(3 * IDS_PER_DRAW)]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch("[0-9a-f]{32}", each) for each in ids)


FORKING = """
import os
from serve.http.middleware import IDS_PER_DRAW, fresh_id
fresh_id()
receiving, sending = os.pipe()
if os.fork() == 0:
    os.write(sending, fresh_id().encode())
    os._exit(0)
os.wait()
print(os.read(receiving, 32).decode() in {fresh_id() for _ in range(IDS_PER_DRAW)})
"""


def test_a_forked_child_gives_out_other_ids_than_its_parent() -> None:
    # In a process of its own, which has no other threads.
    ran = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"
