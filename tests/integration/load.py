"""Clients, each with one request at a time, against one HTTP process of a running server, and what became of each."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from types import TracebackType
from typing import Any

import httpx

from tests.integration.running import Server

TIMEOUT_S = 60
# Between an answer and the next request, so that the clients do not keep a core busy.
PAUSE_S = 0.02


def asking(server: Server, ip: str) -> httpx.Client:
    """A client of the HTTP process at this address."""
    return httpx.Client(base_url=f"http://{ip}:{server.port}", headers=server.auth, timeout=TIMEOUT_S)


@dataclass(frozen=True, slots=True)
class Answer:
    """`part` was on when it was asked; `status` is None where none came."""

    part: str
    status: int | None
    ended: float


class Load:
    """`part` may be set meanwhile, to tell what was asked before something from what was asked after."""

    def __init__(self, server: Server, ip: str, asked: Mapping[str, Any], *, clients: int) -> None:
        self.part = "before"
        self._answers: list[Answer] = []
        self._over = threading.Event()
        self._asked = dict(asked)
        self._threads = [
            threading.Thread(target=self._ask, args=(asking(server, ip),), daemon=True)
            for _ in range(clients)
        ]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(TIMEOUT_S)
            assert not thread.is_alive() or kind is not None

    def _ask(self, client: httpx.Client) -> None:
        with client:
            while not self._over.wait(PAUSE_S):
                part, status = self.part, None
                # Whatever it was, there is no answer.
                with suppress(httpx.HTTPError):
                    status = client.post("/v1/chat/completions", json=self._asked).status_code
                self._answers.append(Answer(part, status, time.monotonic()))

    def count(self, part: str | None = None) -> int:
        """How many have ended, of those that were asked in this part, or of all."""
        return len(self._of(part))

    def failed(self, part: str | None = None) -> list[Answer]:
        return [answer for answer in self._of(part) if answer.status != 200]

    def _of(self, part: str | None) -> list[Answer]:
        return [answer for answer in list(self._answers) if part in (None, answer.part)]

    def said(self) -> str:
        """For a person."""
        ended = [answer.ended for answer in self._answers if answer.status == 200]
        gap_s = max(later - earlier for earlier, later in pairwise(ended))
        statuses = sorted({str(answer.status) for answer in self.failed()})
        failed = f"{len(self.failed())} failed ({', '.join(statuses)})" if statuses else "none failed"
        return f"{self.count()} asked, {failed}, longest gap {gap_s:.2f} s"
