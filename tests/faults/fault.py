"""A fault of a run: what it needs of the servers, how it strikes, and how it is repaired."""

from __future__ import annotations

import random
from typing import Literal

from billing.ledger.leases import LeaseTimes
from tests.faults.disk import SIZE_KIB
from tests.faults.world import LedgerKind, World

# The leases of the dead end within the run: short enough to wait for.
SHORT_LEASE = LeaseTimes(ttl_s=0.9, renew_every_s=0.2)
BOTH: tuple[LedgerKind, ...] = ("sqlite", "postgresql")


class Fault:
    """One kind of fault. `strike` at a random moment of the load, `repair` a random moment later."""

    name = ""
    ledgers: tuple[LedgerKind, ...] = BOTH
    # With nobody dead, each hold must be closed by its own request, and each stream that began be billed.
    everyone_lives = True
    # An engine raises what no engine may.
    may_err = False
    # Whether something that a chat needs is broken.
    chats_may_fail = True
    lease = LeaseTimes()
    database_timeout_s = 30.0
    drain_s = 5
    leavers = 0.0
    longest_tokens = 24
    on_redis = False
    # Every other run may go on while the ledger is away.
    allowances = ("0",)
    needs_disk = False
    disk_kib = SIZE_KIB
    # Which server is reached by a link that may be slow.
    slow_link: Literal["", "ledger", "redis"] = ""
    collects = False
    # The share of clients that send or read slowly, or stop reading.
    dawdlers = 0.05
    outage_s = (0.0, 0.3)

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    async def strike(self, world: World) -> None:
        raise NotImplementedError

    async def repair(self, world: World) -> None:
        """Nothing, where nothing is left broken."""
