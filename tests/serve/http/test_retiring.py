"""An HTTP process whose successor runs: nobody is cut off, and nobody is kept."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.serve.http.serving import Listening, eventually, listening

ASK = b"GET /%s HTTP/1.1\r\nHost: h\r\n\r\n"


def retire(http: Listening) -> tuple[int, int]:
    async def ask() -> tuple[int, int]:
        return http.server.retire()

    return asyncio.run_coroutine_threadsafe(ask(), http.loop).result(20)


def test_each_connection_gets_one_more_reply_that_says_it_is_the_last(tmp_path: Path) -> None:
    with listening(tmp_path) as http, http.connect() as idle, http.connect() as held:
        idle.send(ASK % b"first")
        assert b"connection: close" not in idle.answer().lower()
        held.send(ASK % b"held")
        eventually(lambda: "/held" in http.application.seen)
        assert retire(http) == (1, 1)
        assert http.server.acceptor.publish() is None
        idle.send(ASK % b"second")
        assert b"connection: close" in idle.reply().lower()
        eventually(lambda: retire(http) == (0, 1))
        http.release()
        # Its head had not been sent.
        last = held.reply()
        assert last.startswith(b"HTTP/1.1 200") and b"connection: close" in last.lower()
        eventually(lambda: retire(http) == (0, 0))
        assert not http.application.left


def test_who_waited_to_be_taken_in_is_answered_and_who_comes_later_is_not_taken(tmp_path: Path) -> None:
    with listening(tmp_path) as http:
        waiting = []

        async def retire_while_some_wait() -> None:
            # The loop is here, so that nobody is taken in before.
            waiting.extend(http.connect() for _ in range(3))
            # Taken in, they count, though none of them has a protocol yet.
            assert http.server.retire() == (3, 0)

        asyncio.run_coroutine_threadsafe(retire_while_some_wait(), http.loop).result(20)
        for client in waiting:
            with client:
                client.send(ASK % b"")
                assert client.reply().startswith(b"HTTP/1.1 200")
        try:
            http.connect().socket.close()
        except ConnectionRefusedError:
            return
        raise AssertionError("a connection was taken after the retirement")
