"""The receiver that docs/webhooks.md shows, as it stands there: it takes what is genuine, once."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.billing.conftest import wait_for
from tests.billing.webhooks.conftest import Hooks

PAGE = Path(__file__).parents[3] / "docs/webhooks.md"


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def running(script: str, secret: str, port: int) -> Iterator[list[str]]:
    """What the script has printed, once the block has ended."""
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        env={**os.environ, "WEBHOOK_SECRET": secret, "PORT": str(port)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    printed: list[str] = []
    try:
        wait_for(lambda: answers(port), "the receiver listens")
        yield printed
    finally:
        process.terminate()
        printed += process.communicate()[0].splitlines()


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_the_documented_receiver_takes_each_genuine_event_once(hooks: Hooks) -> None:
    (script,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    endpoint, secret = await hooks.webhooks.add(f"http://127.0.0.1:{port}/")
    with running(script, secret, port) as printed:
        sent = await hooks.webhooks.test(endpoint.id)
        await hooks.send()
        await hooks.webhooks.redeliver(sent.event_id)
        await hooks.send()
        await hooks.webhooks.rotate_secret(endpoint.id, overlap_s=0)
        await hooks.later(1)
        await hooks.webhooks.test(endpoint.id)
        await hooks.send()
    assert hooks.results == ["delivered", "delivered", "refused"]
    assert printed == [f"webhook.test {sent.event_id}"]
