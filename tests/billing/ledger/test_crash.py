"""A server that is killed with SIGKILL in the midst of settling: what it had called persisted is there, once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.billing.conftest import Books

SERVER = """
import asyncio, sys
from datetime import datetime, UTC
from pathlib import Path
from billing.caller import NO_LIMITS, Caller
from billing.store.database import open_database
from billing.ledger.ledger import Ledger
from billing.price import Cost
from billing.ledger.spool import Spool
from billing.usage import UsageFigures

url, spool, workspace, project, key = sys.argv[1:]
caller = Caller(workspace, project, key, True, NO_LIMITS)

async def request(ledger):
    while True:
        now = datetime.now(UTC)
        hold = await ledger.hold(
            caller, model_id="model-a", pricing_version=1, amount_nano_usd=1000, request_id="r", now=now
        )
        settled = await ledger.settle(
            hold, figures=UsageFigures(1, 2, 0, False), cost=Cost(400, 400, False), outcome="completed", now=now
        )
        print(settled.event_id, settled.status, flush=True)

async def main():
    ledger = Ledger(open_database(url), Spool(Path(spool)))
    await asyncio.gather(*(request(ledger) for _ in range(8)))

asyncio.run(main())
"""


@pytest.mark.parametrize("answers_before_the_kill", [1, 40, 150])
async def test_every_settlement_that_was_answered_is_in_the_ledger_once(
    books: Books, tmp_path: Path, answers_before_the_kill: int
) -> None:
    caller = await books.new_caller()
    arguments = [books.url, str(tmp_path / "its-spool.db")]
    identity = [caller.workspace_id, caller.project_id, caller.key_id]
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVER, *arguments, *identity, stdout=subprocess.PIPE
    )
    assert server.stdout is not None
    answers = []
    async with asyncio.timeout(60):
        for _ in range(answers_before_the_kill):
            answers.append(await server.stdout.readline())
        server.kill()
        answers += (await server.stdout.read()).splitlines()
        await server.wait()
    whole = [answer.split() for answer in answers if len(answer.split()) == 2]
    answered = {event_id.decode() for event_id, status in whole if status == b"persisted"}

    events = [event.event_id for event in await books.events()]

    assert len(events) == len(set(events))
    assert len(answered) >= answers_before_the_kill
    assert answered <= set(events)
    posted, held = await books.money(caller)
    assert posted == 400 * len(events)
    # What was in flight when it died is still held, and the sweeper's to close.
    assert held <= 8 * 1000
