"""Rounds of histories: clients on a ledger of their own, whose sequencer runs beside them, and the check of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchmarks.ledger.log import sequencing
from billing.books.invariants import differences
from billing.store.migration import upgrade
from billing.transparency.log_sql import status
from tests.faults.leaves import leaves_of_workspaces
from tests.histories import journal
from tests.histories.checker import anomalies
from tests.histories.clients import opened


@dataclass
class Round:
    operations: Counter[str] = field(default_factory=Counter)
    versions: int = 0
    anomalies: list[str] = field(default_factory=list)


async def rounds(
    url: str, folder: Path, *, clients: int, operations: int, of_round: int, seed: int
) -> AsyncIterator[Round]:
    """Histories on an empty database until so many operations were made."""
    await upgrade(url)
    async with AsyncExitStack() as stack:
        world = await opened(url, folder, stack)
        database = world.servers[0].database
        await database.write(journal.begin)
        sequencer = await stack.enter_async_context(sequencing(database))
        made, number = 0, 0
        while made < operations:
            number += 1
            await world.run(clients, min(of_round, operations - made), f"{seed} {number}")
            changes = await database.write(journal.taken)
            found = Round(Counter(f"{one.kind}: {one.outcome}" for one in world.operations), len(changes))
            found.anomalies += anomalies(changes, world.operations, world.root_of, world.home)
            found.anomalies += [str(one) for one in await database.read(differences)]
            while (await database.read(status)).pending:
                await sequencer.once()
            own = sorted(set(world.home.values()))
            leaves = await database.read(partial(leaves_of_workspaces, workspaces=own))
            found.anomalies += leaves.troubles
            made += len(world.operations)
            yield found
