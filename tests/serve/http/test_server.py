"""The HTTP server below the API: how it takes connections in."""

from __future__ import annotations

import asyncio
import resource
import socket
from pathlib import Path

import uvloop
from starlette.responses import PlainTextResponse

from serve.app import PithServer
from serve.config.settings import Settings
from serve.http.server.server import http_config
from serve.processes.listener import own_listener
from serve.processes.process_setup import allow_open_files
from tests.serve.served import settings_document

WAITING = 200


def test_connections_that_wait_are_taken_in_within_a_few_turns_of_the_loop(tmp_path: Path) -> None:
    settings = Settings.model_validate(settings_document(tmp_path))

    async def turns_taken() -> int:
        listener = own_listener("127.0.0.1", 0)
        clients = [socket.create_connection(listener.sock.getsockname()) for _ in range(WAITING)]
        server = PithServer(http_config(PlainTextResponse("hello"), settings), listener)
        serving = asyncio.create_task(server.serve())
        turns = 0
        while len(server.server_state.connections) < WAITING and turns < 2 * WAITING:
            turns += 1
            await asyncio.sleep(0)
        for client in clients:
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        replies = [await asyncio.to_thread(client.recv, 4096) for client in clients]
        for client in clients:
            client.close()
        server.should_exit = True
        await serving
        assert all(reply.startswith(b"HTTP/1.1 200") for reply in replies)
        return turns

    assert uvloop.run(turns_taken()) < WAITING / 4


def test_the_soft_limit_of_open_files_is_raised_as_far_as_it_may_be() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    allow_open_files()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
