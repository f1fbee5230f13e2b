"""What a server does to its money, with a witness of what its callers were told: `python -m tests.power_loss.workload`.

Everything below the folder begins with nothing, as on a server's first start, and the process ends without a word."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import Connection, select

from billing.accounts.accounts import Accounts
from billing.adjustments.adjustments import Adjustments
from billing.archive.archiver import Archiver
from billing.batches.file_store import FileFolder
from billing.caller import Caller
from billing.errors import LedgerUnavailable, UsageNotRecorded
from billing.ledger.ledger import Ledger
from billing.ledger.spool import Spool
from billing.price import ModelPrice, cost
from billing.store.database import FakeOutageDatabase, open_database
from billing.store.log_tables import log_pending
from billing.store.migration import newest_revision, upgrade
from billing.transparency.notes import signer
from billing.transparency.sequencer import Sequencer
from billing.usage import UsageFigures
from serve.money.ledger_setup import read_pepper
from serve.ops.administration import make_admin_key
from tests.power_loss.journal import Witness

PRICE = ModelPrice("model-a", 150_000, 600_000, 20_000)
AT_ONCE = 6
REFUSED_S = 0.02
ORIGIN = "power-loss"
STATE, LEDGER, SPOOL, FILES, ARCHIVE = "state", "ledger.db", "spool.db", "files", "archive"
OLD_EVENTS = 8


def now() -> datetime:
    return datetime.now(UTC)


class Workload:
    """One server on its first day, in `state` below the folder; `url` is of its ledger."""

    def __init__(self, folder: Path, url: str, seed: int) -> None:
        self.state = folder / STATE
        self.witness = Witness(os.environ)
        self.rng = random.Random(seed)
        self.url = url
        self.database = FakeOutageDatabase(open_database(url))
        self.spool = Spool(self.state / SPOOL)
        self.ledger = Ledger(self.database, self.spool)
        self.version = 0

    async def run(self, requests: int) -> None:
        pepper = read_pepper(self.state)
        make_admin_key(self.state / "admin-keys")
        admin_key = (self.state / "admin-keys").read_text()
        self.witness.tell(kind="secrets", pepper=pepper.hex(), admin_key=admin_key)
        await upgrade(self.url)
        self.version = await self.ledger.publish_prices([PRICE], now=now())
        self.accounts = Accounts(self.database, pepper=pepper)
        self.sequencer = Sequencer(
            self.database, signer(pepper, ORIGIN), revision=newest_revision(), clock=now
        )
        caller = await self._customer("main")
        await self._archive(await self._customer("old"))
        gate = asyncio.Semaphore(AT_ONCE)
        stop = asyncio.Event()
        others = [asyncio.create_task(one(stop)) for one in (self._weather, self._upkeep)]
        await asyncio.gather(*(self._request(caller, gate, number) for number in range(requests)))
        stop.set()
        await asyncio.gather(*others)
        self.database.is_down = self.database.loses_answers = False
        await self.ledger.replay_spool()

    async def _customer(self, name: str) -> Caller:
        await self.accounts.create_workspace(name, now=now())
        await self.accounts.create_project(name, "project", now=now())
        _, key = await self.accounts.keys.create(f"{name}/project", "key", now=now())
        self.witness.tell(kind="key", key=key)
        return await self.accounts.authenticate(key, now=now())

    async def _request(self, caller: Caller, gate: asyncio.Semaphore, number: int) -> None:
        async with gate:
            kind = self.rng.random()
            try:
                if kind < 0.04:
                    await self._adjust(number)
                elif kind < 0.08:
                    await asyncio.to_thread(self._keep_file, number)
                else:
                    await self._use(caller, now(), f"r{number}", released=kind > 0.9)
            except (LedgerUnavailable, UsageNotRecorded):
                # Or all the rest would be refused before the ledger is back.
                await asyncio.sleep(REFUSED_S)

    async def _use(
        self, caller: Caller, moment: datetime, request_id: str, *, released: bool = False
    ) -> None:
        hold = await self.ledger.hold(
            caller,
            model_id=PRICE.model_id,
            pricing_version=self.version,
            amount_nano_usd=10**6,
            request_id=request_id,
            now=moment,
        )
        tokens = self.rng.randrange(900)
        due = cost(PRICE, prompt_tokens=tokens, completion_tokens=7, minimum=True)
        if released:
            self.witness.tell(kind="released", id=hold.event_id)
            await self.ledger.release(hold, now=moment)
            return
        self.witness.tell(kind="asked", id=hold.event_id, nano_usd=due.nano_usd)
        figures = UsageFigures(tokens, 7, 0, stream=False)
        settled = await self.ledger.settle(hold, figures=figures, cost=due, outcome="completed", now=moment)
        self.witness.tell(kind=settled.status, id=hold.event_id)

    async def _adjust(self, number: int) -> None:
        made = await Adjustments(self.database, actor="power loss").credit(
            "main", nano_usd=number + 1, reason="a credit", idempotency_key=f"key {number}"
        )
        self.witness.tell(kind="adjusted", id=made.id, nano_usd=-number - 1)

    def _keep_file(self, number: int) -> None:
        files, data = FileFolder(self.state / FILES), os.urandom(self.rng.randrange(1, 9000))
        file = files.create(f"file{number}")
        files.write(file, data)
        files.close(file)
        self.witness.tell(kind="file", name=f"file{number}", sha256=hashlib.sha256(data).hexdigest())

    async def _weather(self, stop: asyncio.Event) -> None:
        """The ledger is away now and then, or loses its answers: usage goes to the spool."""
        while not stop.is_set():
            self.database.is_down, self.database.loses_answers = self.rng.choice(
                [(False, False), (False, False), (True, False), (False, True)]
            )
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), 0.05)

    async def _upkeep(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            with suppress(LedgerUnavailable):
                await self.ledger.replay_spool()
                await self.ledger.keep_leases()
                await self.sequencer.once()
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), 0.05)

    async def _archive(self, caller: Caller) -> None:
        """Events of months that are over, and the files into which they go."""
        for number in range(OLD_EVENTS):
            moment = now().replace(day=12) - timedelta(days=31 * (2 + number % 2))
            await self._use(caller, moment, f"old {number}")
        while await self.database.read(_waits_for_the_log):
            await self.sequencer.once()
        archiver = Archiver(self.database, self.spool, self.state / ARCHIVE, actor="power loss")
        await archiver.archive(1)
        self.witness.tell(kind="archived")


def _waits_for_the_log(connection: Connection) -> bool:
    return connection.execute(select(log_pending).limit(1)).first() is not None


def main(arguments: Sequence[str]) -> None:
    folder, url, seed, requests = arguments
    asyncio.run(Workload(Path(folder), url, int(seed)).run(int(requests)))
    # As the power goes: nothing is closed.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
