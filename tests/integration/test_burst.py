"""A thousand requests at once against the running server and its real engine."""

from __future__ import annotations

import pytest

from benchmarks.burst.sending import burst, complaints
from benchmarks.load.exchange import chat
from benchmarks.load.loop import Target
from tests.integration.running import Server

AT_ONCE = 1000
TOKENS = 4
TIMEOUT_S = 120


@pytest.mark.parametrize("stream", [pytest.param(False, marks=pytest.mark.long), True])
async def test_a_thousand_at_once_are_answered_or_told_when_to_come_back(
    server: Server, stream: bool
) -> None:
    call = chat("pith-mini", tokens=TOKENS, stream=stream)
    done = await burst("burst", Target(server.url, server.key), call, requests=AT_ONCE, timeout_s=TIMEOUT_S)
    # `/health` must have answered each time: within what time, the benchmark measures.
    assert complaints([done], max_health_ms=1000 * TIMEOUT_S) == []
    assert done.counts().keys() <= {"200", "429", "503"}
    assert done.counts()["200"] >= AT_ONCE // 4
    with server.client() as client:
        assert (
            client.post(
                "/v1/chat/completions",
                json={"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2},
            ).status_code
            == 200
        )
