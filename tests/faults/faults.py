"""What is done to the service under load, and how it is undone."""

from __future__ import annotations

import asyncio
import os
import random
import signal

from tests.faults.compressor import TROUBLES, break_compressor, mend_compressor
from tests.faults.engine import break_engine, mend_engine
from tests.faults.fault import SHORT_LEASE, Fault
from tests.faults.ledger_link import lose_answers
from tests.faults.scarcity import ClocksJump, FullDisk, NoFileHandles, NoMemory, SlowLedger, SlowRedis
from tests.faults.world import World

MONTH_S = 31 * 24 * 3600


class KillIngress(Fault):
    """kill -9 of a server; another takes its place on the same port."""

    name = "kill -9 the ingress"
    everyone_lives = False
    lease = SHORT_LEASE

    async def strike(self, world: World) -> None:
        await world.servers.pop(self.rng.randrange(len(world.servers))).kill()

    async def repair(self, world: World) -> None:
        await world.start_server()


class StopIngress(Fault):
    """SIGSTOP and SIGCONT, for less or for longer than a lease: its holds are closed, and then it goes on."""

    name = "stop and resume an ingress"
    everyone_lives = False
    lease = SHORT_LEASE
    outage_s = (0.2, 3.0)

    async def strike(self, world: World) -> None:
        self.pid = self.rng.choice(world.pids)
        os.kill(self.pid, signal.SIGSTOP)

    async def repair(self, world: World) -> None:
        os.kill(self.pid, signal.SIGCONT)


class KillPostgres(Fault):
    name = "kill -9 PostgreSQL"
    ledgers = ("postgresql",)
    allowances = ("0", "1")
    everyone_lives = False
    lease = SHORT_LEASE
    database_timeout_s = 1.0

    async def strike(self, world: World) -> None:
        await asyncio.to_thread(world.machines.running_postgres().kill)

    async def repair(self, world: World) -> None:
        await asyncio.to_thread(world.machines.running_postgres().start)


class StopPostgres(Fault):
    """SIGSTOP and SIGCONT: connections stay open and nobody answers, for less or for longer than the timeout."""

    name = "stop and resume PostgreSQL"
    ledgers = ("postgresql",)
    allowances = ("0", "1")
    everyone_lives = False
    lease = SHORT_LEASE
    database_timeout_s = 0.4
    outage_s = (0.05, 1.0)

    async def strike(self, world: World) -> None:
        world.machines.running_postgres().stop()

    async def repair(self, world: World) -> None:
        world.machines.running_postgres().resume()


class FullSpoolDisk(Fault):
    """The ledger is away and the spool's disk is full; either comes back first."""

    name = "disk full on the spool"
    ledgers = ("postgresql",)
    allowances = ("0", "1")
    everyone_lives = False
    lease = SHORT_LEASE
    database_timeout_s = 0.4
    needs_disk = True
    outage_s = (0.1, 0.6)

    async def strike(self, world: World) -> None:
        disk = world.disk
        assert disk is not None
        steps = [lambda: disk.fill(world.pids), world.machines.running_postgres().stop]
        for step in self.rng.sample(steps, 2):
            step()
            # Between the two, some events go to the spool, or none can.
            await asyncio.sleep(self.rng.uniform(0, 0.6))

    async def repair(self, world: World) -> None:
        disk = world.disk
        assert disk is not None
        steps = [lambda: disk.free(world.pids), world.machines.running_postgres().resume]
        for step in self.rng.sample(steps, 2):
            step()
            await asyncio.sleep(self.rng.uniform(0, 0.3))


class KillEngine(Fault):
    """Every running request's engine fails in the midst of it, and new requests find none."""

    name = "engine killed"
    may_err = True

    async def strike(self, world: World) -> None:
        break_engine(world.folder, self.rng.choice(("killed", "bug")))

    async def repair(self, world: World) -> None:
        mend_engine(world.folder)


class BreakCompressor(Fault):
    """The compressors alone: killed, stopped, hanging, slow, or answering nonsense, one way after another. Chats whose
    prompts they compress go out whole, and none is lost."""

    name = "compressor broken"
    # What `/v1/compress` makes of nonsense.
    may_err = True
    chats_may_fail = False
    outage_s = (0.2, 1.2)

    async def strike(self, world: World) -> None:
        first, *others = self.rng.sample(TROUBLES, 2)
        break_compressor(world.folder, first)
        for other in others:
            await asyncio.sleep(self.rng.uniform(0.1, 0.8))
            break_compressor(world.folder, other)

    async def repair(self, world: World) -> None:
        mend_compressor(world.folder)


class ClientGone(Fault):
    """Half of the clients leave at a random byte, of their request or of the reply."""

    name = "client gone"
    leavers = 0.5

    async def strike(self, world: World) -> None:
        """It happens all the time."""


class RedisGone(Fault):
    """kill -9 of Redis, where the rate limits are counted; a new one knows nothing."""

    name = "Redis gone"
    on_redis = True

    async def strike(self, world: World) -> None:
        await asyncio.to_thread(world.machines.running_redis().kill)

    async def repair(self, world: World) -> None:
        await asyncio.to_thread(world.machines.running_redis().start)


class Terminate(Fault):
    """SIGTERM in load: what runs longer than the drain time is cut off and settled; a new server takes over."""

    name = "SIGTERM in load"
    longest_tokens = 400

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.drain_s = rng.choice((0, 1))

    async def strike(self, world: World) -> None:
        leaving = list(world.servers)
        world.servers.clear()
        for server in leaving:
            server.terminate()
        await world.start_server()
        for server in leaving:
            status = await server.ended()
            if status != 0:
                raise AssertionError(f"the ingress ended with status {status} after SIGTERM")


class LostAnswers(Fault):
    """The ledger commits, and its answer is lost, with leases as long as they are: nothing waits for their end."""

    name = "lost answers"
    allowances = ("0", "1")
    outage_s = (0.1, 0.8)

    async def strike(self, world: World) -> None:
        lose_answers(world.folder, lose=True)

    async def repair(self, world: World) -> None:
        lose_answers(world.folder, lose=False)


class ClockJumps(Fault):
    """The ledger's clock jumps, by minutes or to another month, and back again."""

    name = "clock jumps"
    outage_s = (0.1, 0.6)

    async def strike(self, world: World) -> None:
        await world.set_clock(self.rng.choice((-1, 1)) * self.rng.choice((120, MONTH_S)))

    async def repair(self, world: World) -> None:
        await world.set_clock(0)


class SlowClients(Fault):
    """Most clients send their bodies or read their replies slowly, or stop reading."""

    name = "slow clients"
    dawdlers = 0.7

    async def strike(self, world: World) -> None:
        """It happens all the time."""


class HookFails(KillIngress):
    """Collections are cut all the time, and the payment system fails, as do the servers that ask it."""

    name = "collection hook fails"
    collects = True


FAULTS: tuple[type[Fault], ...] = (
    KillIngress,
    StopIngress,
    KillPostgres,
    StopPostgres,
    FullSpoolDisk,
    KillEngine,
    BreakCompressor,
    ClientGone,
    RedisGone,
    Terminate,
    LostAnswers,
    ClockJumps,
    SlowClients,
    HookFails,
    ClocksJump,
    SlowLedger,
    SlowRedis,
    FullDisk,
    NoFileHandles,
    NoMemory,
)
