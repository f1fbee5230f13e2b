"""How an HTTP process's service stops."""

from __future__ import annotations

import asyncio
import time
from unittest.mock import AsyncMock, Mock

from serve.app import FAREWELL_PART, Service

DRAIN_S, LOOK_S = 0.4, 0.06


async def test_seeing_clients_off_takes_its_part_of_the_drain_time_however_long_a_look_takes() -> None:
    looks: list[int] = []

    def retire() -> tuple[int, int]:
        looks.append(1)
        # As with thousands of connections: it is the loop that is held up.
        time.sleep(LOOK_S)
        return 1, 0

    server = Mock(started=True, retire=retire)
    server.config.timeout_graceful_shutdown = DRAIN_S
    batches = Mock()
    batches.retire.return_value = 0
    others = [AsyncMock() for _ in range(6)]
    background, verifier, ledger, spool, database, limiter = others
    ended = asyncio.create_task(asyncio.sleep(0))
    service = Service(server, ended, background, batches, verifier, ledger, spool, database, limiter)
    await service.stop()
    assert 1 <= len(looks) <= FAREWELL_PART * DRAIN_S / LOOK_S
    assert server.config.timeout_graceful_shutdown <= DRAIN_S - len(looks) * LOOK_S
    assert server.should_exit and all(other.close.await_count or other.stop.await_count for other in others)
