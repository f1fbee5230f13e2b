"""Requests and tokens by hour and day, counted in the ledger: what no restart may forget."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import Connection, Row, select, update

from billing.errors import LedgerUnavailable, LimitsUnavailable
from billing.periods import period_at
from billing.rate_limits.counters import Answer, Ask, Charge, CountedLimit, PeriodWindow, RemoteCounters
from billing.store.budget_tables import rate_counters
from billing.store.database import Database, Work
from billing.store.dates import now_s
from billing.store.schema import workspaces
from billing.store.statements import inserting

T = TypeVar("T")
_c = rate_counters.c
# When the window of each charge ends that counted it.
Ends = dict[Charge, float]


class LedgerCounters(RemoteCounters):
    """The hours and days of the workspace's time zone, by the database's clock, for all servers of a ledger."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database = database
        self._ends: dict[str, Ends] = {}

    async def _taken(self, ask: Ask) -> Answer:
        answer, ends = await self._written(partial(_take, ask=ask))
        if answer.granted:
            self._ends[ask.ticket] = ends
        return answer

    async def _given_back(self, ask: Ask, unused: Mapping[CountedLimit, int]) -> None:
        ends = self._ends.pop(ask.ticket)
        if unused:
            await self._written(partial(_give_back, ask=ask, ends=ends, unused=unused))

    async def _written(self, work: Work[T]) -> T:
        try:
            return await self._database.write(work, durable=False)
        except LedgerUnavailable as error:
            raise LimitsUnavailable("the ledger, which counts rate limits, is unavailable") from error


def _take(connection: Connection, ask: Ask) -> tuple[Answer, Ends]:
    zone = select(now_s(), workspaces.c.time_zone).where(workspaces.c.id == ask.workspace_id)
    at, time_zone = connection.execute(zone).one()
    moment, windows, ends = datetime.fromtimestamp(at, UTC), [], {}
    rows = _locked(connection, ask, at)
    for charge in ask.charges:
        assert charge.per != "minute"
        row, end = rows[_id(ask, charge)], period_at(charge.per, moment, time_zone).ends_at
        assert end is not None
        # Where the clock was set back, the window goes on that has begun: two would be twice the limit.
        ends[charge] = max(row.ends_at, end.timestamp())
        used = row.used if row.ends_at == ends[charge] else 0
        windows.append(PeriodWindow(charge.limit, 0, used, 0.0, ends[charge] - at))
    fits = all(window.admits(charge.amount) for charge, window in zip(ask.charges, windows, strict=True))
    if fits:
        for charge, window in zip(ask.charges, windows, strict=True):
            counted = {"used": window.current + charge.amount, "ends_at": ends[charge]}
            connection.execute(update(rate_counters).where(_c.id == _id(ask, charge)).values(**counted))
    return Answer(fits, False, tuple(windows)), ends


def _locked(connection: Connection, ask: Ask, at: float) -> dict[str, Row[Any]]:
    """The rows of the ask's limits, which nobody else changes until this transaction ends."""
    ids = sorted(_id(ask, charge) for charge in ask.charges)
    locking = select(rate_counters).where(_c.id.in_(ids)).order_by(_c.id).with_for_update()
    rows = connection.execute(locking).all()
    if len(rows) < len(ids):
        # No row is old that counts soon: upkeep would delete it.
        new = [{"id": one, "ends_at": at, "used": 0} for one in ids]
        connection.execute(inserting(connection.dialect.name, rate_counters).on_conflict_do_nothing(), new)
        rows = connection.execute(locking).all()
    return {row.id: row for row in rows}


def _give_back(connection: Connection, ask: Ask, ends: Ends, unused: Mapping[CountedLimit, int]) -> None:
    """In any other window it would free room that was never taken."""
    charges = [charge for charge in ask.charges if charge.kind in unused]
    for charge in sorted(charges, key=lambda charge: _id(ask, charge)):
        counted = update(rate_counters).where(_c.id == _id(ask, charge), _c.ends_at == ends[charge])
        connection.execute(counted.values(used=_c.used - unused[charge.kind]))


def _id(ask: Ask, charge: Charge) -> str:
    return f"{ask.project_id}:{charge.kind}:{charge.per}"
