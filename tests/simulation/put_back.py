"""Bugs that were mended, as parts of a simulated server: the simulation must find each of them again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, cast

from sqlalchemy import Connection, text

from billing.ledger import budgets
from billing.ledger.budgets import Spender
from billing.ledger.leases import LeaseKeeper
from billing.ledger.ledger import Ledger
from billing.ledger.recording import OfflineAllowance, Recorder, Replayed, replay
from billing.store.database import CircuitBreaker, Database, Work
from billing.store.log_tables import log_pending
from billing.transparency import log_sql
from billing.transparency.log_sql import Waiting
from billing.transparency.sequencer import Sequencer
from billing.usage import Hold, Outcome, Settlement, UsageEvent, Used
from tests.simulation.server import Parts

# As where one server was configured for longer requests than another.
LONG_S, SHORT_S = 3780.0, 20.0


class ForgettingKeeper(LeaseKeeper):
    """Failed releases are not retried, nor openings whose answer was lost looked after."""

    async def close_unknown(self) -> int:
        return 0


class AgeingKeeper(LeaseKeeper):
    """Each server closes every hold that is older than it thinks a request may get, whoever carries it."""

    async def _sweep(self) -> None:
        older_than_s = LONG_S if self.owner.startswith("s1.") else SHORT_S

        def close_aged(connection: Connection) -> None:
            aged = "created_at < strftime('%Y-%m-%d %H:%M:%f', pith_now() - :age, 'unixepoch')"
            of_workspace = (
                f"(SELECT coalesce(sum(amount_nano_usd), 0) FROM holds WHERE workspace_id = w.id AND {aged})"
            )
            freeing = f"UPDATE workspaces AS w SET held_nano_usd = held_nano_usd - {of_workspace}"
            connection.execute(text(freeing), {"age": older_than_s})
            connection.execute(text(f"DELETE FROM holds WHERE {aged}"), {"age": older_than_s})

        await self._database.write(close_aged)


class HastyKeeper(LeaseKeeper):
    """A lease that has ended by the database's clock is enough: nobody looks twice."""

    async def _sweep(self) -> None:
        def close_ended(connection: Connection) -> None:
            ended = "owner <> :owner AND expires_at <= pith_now()"
            of_workspace = (
                f"(SELECT coalesce(sum(amount_nano_usd), 0) FROM holds WHERE workspace_id = w.id AND {ended})"
            )
            freeing = f"UPDATE workspaces AS w SET held_nano_usd = held_nano_usd - {of_workspace}"
            connection.execute(text(freeing), {"owner": self.owner})
            connection.execute(text(f"DELETE FROM holds WHERE {ended}"), {"owner": self.owner})

        await self._database.write(close_ended)


class GenerousAllowance(OfflineAllowance):
    """What waits in the spool is not counted."""

    async def _costs(self) -> dict[str, int]:
        return {}


def _with_keeper(keeper: type[LeaseKeeper]) -> Parts:
    class LedgerWithKeeper(Ledger):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            kept = self._leases
            self._leases = keeper(kept._database, kept._spool, owner=kept.owner, times=kept.times)

    return Parts(ledger=LedgerWithKeeper)


def _with_recorder(recorder: type[Recorder]) -> Parts:
    class LedgerWithRecorder(Ledger):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            kept = self._recorder
            self._recorder = recorder(kept._ledger, kept._spool, kept._written_off)

    return Parts(ledger=LedgerWithRecorder)


class RecorderThatNeverSpools(Recorder):
    """Usage that the ledger does not take is forgotten, and its caller told that all is well."""

    async def _in_spool(self, events: Sequence[UsageEvent]) -> None:
        """Nothing."""


class LedgerWithGenerousAllowance(Ledger):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._allowance = GenerousAllowance(self._spool, nano_usd=self._allowance._nano_usd)


class RecorderThatPostsApart(Recorder):
    """A chat and the compression of its prompt name each other, and are posted in two transactions."""

    async def record(self, events: Sequence[UsageEvent]) -> list[Settlement]:
        settled: list[Settlement] = []
        for event in events:
            settled += await super().record([event])
        return settled


class LedgerThatSettlesApart(Ledger):
    """Each is settled by itself, as if they were two requests."""

    async def settle_all(
        self, used: Sequence[Used], *, outcome: Outcome, now: datetime, also: Work[None] | None = None
    ) -> list[Settlement]:
        settled: list[Settlement] = []
        for one in used:
            settled += await super().settle_all([one], outcome=outcome, now=now)
        return settled


class RecorderThatSpoolsApart(Recorder):
    """Each goes to the spool in a transaction of its own, and the server may die between the two."""

    async def _in_spool(self, events: Sequence[UsageEvent]) -> None:
        for event in events:
            await super()._in_spool([event])


class LedgerThatReplaysApart(Ledger):
    """What waits in the spool is replayed event by event."""

    async def replay_spool(self) -> Replayed:
        return await replay(self._spool, self._database, batch=1)


class RecorderThatForgetsTheOther(Recorder):
    """The compression's event is left out where the ledger is away."""

    async def _in_spool(self, events: Sequence[UsageEvent]) -> None:
        await super()._in_spool(events[:1])


class LedgerThatForgetsBudgets(Ledger):
    """A hold does not remember in which periods of budgets it was counted."""

    async def _opened(self, hold: Hold) -> Hold:
        opened = await super()._opened(hold)
        forgetting = text("UPDATE holds SET budgets = NULL WHERE event_id = :id")
        await self._database.write(lambda c: c.execute(forgetting, {"id": hold.event_id}))
        return opened


class LedgerThatForgetsPersons(Ledger):
    """An event does not say whom its hold was for."""

    async def _opened(self, hold: Hold) -> Hold:
        return replace(await super()._opened(hold), person=None)


class LedgerThatChecksBudgetsFirst(Ledger):
    """Whether budgets have room is looked at in one transaction, and they are held in another."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._requests = cast(CircuitBreaker, Lifting(self._requests))

    async def _opened(self, hold: Hold) -> Hold:
        def look(connection: Connection) -> None:
            of = Spender(hold.workspace_id, hold.project_id, hold.key_id, hold.person, hold.tags)
            named = (None, *(hold.tags or "").split(","))
            rooms = [one.remaining_nano_usd for one in budgets.in_force(connection, of) if one.tag in named]
            if any(room is not None and hold.amount_nano_usd > room for room in rooms):
                # Refused as the ledger itself does it.
                budgets.reserve(connection, of, hold.amount_nano_usd, hold.event_id)

        await self._database.write(look)
        return await super()._opened(hold)


class Lifting(Database):
    """Budgets are counted, and bind nobody."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    async def read(self, work: Work[Any]) -> Any:
        return await self.inner.read(work)

    async def write(self, work: Work[Any], *, durable: bool = True) -> Any:
        def lifted(connection: Connection) -> Any:
            connection.execute(_LIFT, {"by": 10**15})
            try:
                return work(connection)
            finally:
                connection.execute(_LIFT, {"by": -(10**15)})

        return await self.inner.write(lifted, durable=durable)

    async def close(self) -> None:
        await self.inner.close()


_LIFT = text("UPDATE budgets SET limit_nano_usd = limit_nano_usd + :by")


class SequencerWithoutGuard(Sequencer):
    """Two servers put the same leaves into the tree, or one after an answer that was lost."""

    def _computed(self, found: Waiting) -> Callable[..., None] | None:
        write = super()._computed(found)
        if write is None or found.edge is None:
            return write

        def write_anyway(connection: Connection, *, at: datetime) -> None:
            ids = [log_sql.id_of(row) for row in found.rows]
            restored = [{"id": id_} for id_ in ids if not _waits(connection, id_)]
            if restored:
                connection.execute(log_pending.insert(), restored)
            write(connection, of=log_sql.head(connection), at=at)

        return write_anyway


def _waits(connection: Connection, id_: str) -> bool:
    return bool(connection.execute(log_pending.select().where(log_pending.c.id == id_)).first())


class SequencerThatTakesFirst(Sequencer):
    """What waits is taken in one transaction, and put into the tree in another."""

    def _computed(self, found: Waiting) -> Callable[..., None] | None:
        if found.edge is not None:
            self._taken = [log_sql.id_of(row) for row in found.rows]
        return super()._computed(found)

    async def once(self) -> None:
        self._database = TakingFirst(self._database, self)
        try:
            await super().once()
        finally:
            self._database = self._database.inner

    _taken: Sequence[str] = ()


class TakingFirst(Database):
    def __init__(self, inner: Database, sequencer: SequencerThatTakesFirst) -> None:
        self.inner = inner
        self._sequencer = sequencer

    async def read(self, work: Work[Any]) -> Any:
        return await self.inner.read(work)

    async def write(self, work: Work[Any], *, durable: bool = True) -> Any:
        ids, self._sequencer._taken = self._sequencer._taken, ()
        if not ids:
            return await self.inner.write(work)
        await self.inner.write(partial(_take, ids=ids))

        def put(connection: Connection) -> None:
            rows = [{"id": id_} for id_ in ids if not _waits(connection, id_)]
            connection.execute(log_pending.insert(), rows)
            work(connection)

        return await self.inner.write(put)

    async def close(self) -> None:
        await self.inner.close()


def _take(connection: Connection, ids: Sequence[str]) -> None:
    connection.execute(log_pending.delete().where(log_pending.c.id.in_(ids)))


BUGS: dict[str, tuple[Parts, str]] = {
    "failed releases are not retried": (_with_keeper(ForgettingKeeper), "still open at rest"),
    "each sweeper has a cutoff of its own": (_with_keeper(AgeingKeeper), "hold of a running request is gone"),
    "a lease that ended is swept at the first look": (
        _with_keeper(HastyKeeper),
        "hold of a running request is gone",
    ),
    "usage is not spooled": (_with_recorder(RecorderThatNeverSpools), "is lost"),
    "the spool is not counted against the allowance": (
        Parts(ledger=LedgerWithGenerousAllowance),
        "of an allowance of",
    ),
    "a chat and its compression are posted apart": (_with_recorder(RecorderThatPostsApart), "posted alone"),
    "a chat and its compression are settled apart": (
        Parts(ledger=LedgerThatSettlesApart),
        "and was settled with",
    ),
    "a chat and its compression are spooled apart": (_with_recorder(RecorderThatSpoolsApart), "posted alone"),
    "a chat and its compression are replayed apart": (Parts(ledger=LedgerThatReplaysApart), "posted alone"),
    "a hold forgets the periods of its budgets": (Parts(ledger=LedgerThatForgetsBudgets), "and add up to"),
    "a hold forgets its person": (Parts(ledger=LedgerThatForgetsPersons), "does not count in each budget"),
    "budgets are looked at before they are held": (
        Parts(ledger=LedgerThatChecksBudgetsFirst),
        "of a budget of",
    ),
    "leaves are written whatever the tree is meanwhile": (
        Parts(sequencer=SequencerWithoutGuard),
        "leaves are signed",
    ),
    "leaves are taken before they are put": (Parts(sequencer=SequencerThatTakesFirst), "leaves are signed"),
    "a compression is not spooled with its chat": (
        _with_recorder(RecorderThatForgetsTheOther),
        "posted alone",
    ),
}
