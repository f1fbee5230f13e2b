"""Faults that are no death: what answers late, clocks that are off, and a disk, file handles or memory used up."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import sqlite3
import threading
from contextlib import closing

import psutil

from tests.faults.fault import SHORT_LEASE, Fault
from tests.faults.world import World

HOUR_S = 3600
# Of each answer of a slow ledger, and of a slow Redis.
QUERY_S, REDIS_S = 1.0, 0.5
SPARE_BYTES = 2**22


class ClocksJump(Fault):
    """The clocks of the servers' processes and of their ledger jump by an hour, either way, and back again."""

    name = "clocks an hour off"
    outage_s = (0.3, 1.2)

    async def strike(self, world: World) -> None:
        await world.set_all_clocks(self.rng.choice((-1, 1)) * HOUR_S)

    async def repair(self, world: World) -> None:
        await world.set_all_clocks(0)


class SlowLedger(Fault):
    """Each answer of PostgreSQL takes a second; another program has SQLite's lock for a second, again and again."""

    name = "slow ledger"
    # The product's own.
    database_timeout_s = 5.0
    slow_link = "ledger"
    outage_s = (3.0, 8.0)
    everyone_lives = False
    lease = SHORT_LEASE

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self._ends = threading.Event()
        self._hogging: threading.Thread | None = None

    async def strike(self, world: World) -> None:
        if world.link is not None:
            world.link.delay_s = QUERY_S
            return
        file = world.plan.settings.billing.database_url.removeprefix("sqlite:///")
        self._hogging = threading.Thread(target=self._hog, args=[file])
        self._hogging.start()

    def _hog(self, file: str) -> None:
        with closing(sqlite3.connect(file, isolation_level=None, timeout=30)) as other:
            while not self._ends.wait(0.05):
                other.execute("BEGIN IMMEDIATE")
                self._ends.wait(QUERY_S)
                other.execute("ROLLBACK")

    async def repair(self, world: World) -> None:
        if world.link is not None:
            world.link.delay_s = 0
            return
        self._ends.set()
        assert self._hogging is not None
        await asyncio.to_thread(self._hogging.join)


class SlowRedis(Fault):
    """Each answer of Redis takes half a second."""

    name = "slow Redis"
    on_redis = True
    slow_link = "redis"
    outage_s = (2.0, 5.0)

    async def strike(self, world: World) -> None:
        assert world.link is not None
        world.link.delay_s = REDIS_S

    async def repair(self, world: World) -> None:
        assert world.link is not None
        world.link.delay_s = 0


class FullDisk(Fault):
    """The disk of SQLite's ledger and of the spool is full."""

    name = "disk full, ledger and spool"
    ledgers = ("sqlite",)
    everyone_lives = False
    lease = SHORT_LEASE
    needs_disk = True
    disk_kib = 32 * 1024
    outage_s = (0.3, 2.0)

    async def strike(self, world: World) -> None:
        assert world.disk is not None
        world.disk.fill(world.pids)

    async def repair(self, world: World) -> None:
        assert world.disk is not None
        world.disk.free(world.pids)


class NoFileHandles(Fault):
    """The servers may open nothing more: no file, no connection."""

    name = "no file handles"
    lease = SHORT_LEASE
    everyone_lives = False
    outage_s = (0.3, 2.0)

    async def strike(self, world: World) -> None:
        for pid in world.pids:
            _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            self._before = hard
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{pid}/fd")), hard))

    async def repair(self, world: World) -> None:
        for pid in world.pids:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (self._before, self._before))


class NoMemory(Fault):
    """The servers get no more memory than they have, but for a few megabytes."""

    name = "memory at its limit"
    may_err = True
    lease = SHORT_LEASE
    everyone_lives = False
    outage_s = (0.3, 2.0)

    async def strike(self, world: World) -> None:
        for pid in world.pids:
            limit = psutil.Process(pid).memory_info().vms + SPARE_BYTES
            resource.prlimit(pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))

    async def repair(self, world: World) -> None:
        for pid in world.pids:
            resource.prlimit(pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
