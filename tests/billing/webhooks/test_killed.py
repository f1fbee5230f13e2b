"""A sender that dies after the receiver took the event and before it was recorded: sent again, never lost."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from tests.billing.webhooks.conftest import Hooks

ROOT = Path(__file__).parents[3]


async def test_a_sender_that_is_killed_before_it_recorded_leaves_the_event_to_another(hooks: Hooks) -> None:
    endpoint, secret = await hooks.webhooks.add(f"{hooks.receiver.url}/hook")
    await hooks.webhooks.test(endpoint.id)
    moment = str(hooks.books.clock.moment.timestamp())
    script = str(Path(__file__).with_name("sending.py"))
    process = await asyncio.create_subprocess_exec(
        sys.executable, script, hooks.books.url, moment, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    # Before its answer is written, so the sender cannot have recorded it.
    hooks.receiver.before = lambda got: os.kill(process.pid, signal.SIGKILL)
    assert await process.wait() == -signal.SIGKILL
    hooks.receiver.before = lambda got: None

    await hooks.send()
    assert len(hooks.receiver.got) == 1, "the dead sender's claim still stands"
    await hooks.later(60)
    await hooks.send()
    await hooks.send()
    first, second = hooks.receiver.got
    assert (first.id, first.body) == (second.id, second.body) and second.is_signed_with(secret)
    (found,) = await hooks.webhooks.deliveries()
    assert found.state == "delivered" and found.attempts == 1
