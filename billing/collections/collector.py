"""Collections as upkeep and operators use them: cut what is due, hand it over, list it, record the outcome."""

import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial

from billing.accounts import account_sql
from billing.accounts.account_sql import Page
from billing.collections import collection_sql
from billing.collections.collection import (
    MAX_NOTE_CHARS,
    MAX_REFERENCE_CHARS,
    Collection,
    HookAnswer,
    HookCommand,
    State,
    checked_text,
    request_of,
    run_hook,
)
from billing.errors import HookFailed
from billing.store.database import Database

log = logging.getLogger(__name__)
Run = Callable[[HookCommand, bytes], Awaitable[HookAnswer]]

# Beyond the command's own time: for the ledger to answer.
CLAIM_MARGIN_S = 60


class Collector:
    """The collections of one ledger; changes are in the audit log as made by `actor`.

    Every method raises `LedgerUnavailable`.
    """

    def __init__(self, database: Database, *, actor: str, run: Run = run_hook) -> None:
        """`run` runs the hook's command."""
        self._database = database
        self._actor = actor
        self._run = run

    async def cut_due(self, *, threshold_cents: int, now: datetime) -> list[Collection]:
        """Cuts one for every workspace whose uncollected balance has reached the threshold, each in a transaction
        of its own. Any number of servers may do so at once."""
        due = await self._database.read(lambda c: collection_sql.due_workspaces(c, threshold_cents))
        cuts = []
        for workspace_id in due:
            cut = partial(
                collection_sql.cut,
                workspace_id=workspace_id,
                threshold_cents=threshold_cents,
                actor=self._actor,
                now=now,
            )
            collection = await self._database.write(cut)
            if collection is not None:
                cuts.append(collection)
        return cuts

    async def cut_now(self, workspace: str, *, now: datetime) -> Collection | None:
        """Cuts the whole cents there are, even below the threshold; None if there is not even one.

        Raises `UnknownAccount`.
        """
        found = await self._database.read(lambda c: account_sql.find_workspace(c, workspace))
        cut = partial(
            collection_sql.cut, workspace_id=found.id, threshold_cents=1, actor=self._actor, now=now
        )
        return await self._database.write(cut)

    async def listed(
        self,
        *,
        workspace: str | None = None,
        state: State | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        page: Page | None = None,
    ) -> list[Collection]:
        """Oldest first; by the time of the cut, from `since` to before `until`. Raises `UnknownAccount`."""
        read = partial(
            collection_sql.listed, workspace=workspace, state=state, since=since, until=until, page=page
        )
        return await self._database.read(read)

    async def mark(
        self,
        collection_id: str,
        state: State,
        *,
        reference: str | None = None,
        note: str | None = None,
        now: datetime,
    ) -> Collection:
        """Raises `UnknownCollection`, `IllegalMove` or `InvalidCollection`, and then nothing has changed."""
        move = partial(
            collection_sql.move,
            collection_id=collection_id,
            wanted=state,
            reference=checked_text("reference", reference, MAX_REFERENCE_CHARS),
            note=checked_text("note", note, MAX_NOTE_CHARS),
            actor=self._actor,
            now=now,
        )
        return await self._database.write(move)

    async def hand_over(self, hook: HookCommand, *, clock: Callable[[], datetime]) -> int:
        """Runs the hook for every open collection that is due; how many were handed over.

        A time-out ends the round: a payment system that hangs would hang for each of them.
        """
        count = 0
        while (claimed := await self._claim(hook, clock())) is not None:
            try:
                answer = await self._run(hook, request_of(claimed))
            except HookFailed as failure:
                await self._put_off(claimed, failure, clock())
                if failure.timed_out:
                    return count
                continue
            finish = partial(
                collection_sql.hand_over, claimed=claimed, answer=answer, actor=self._actor, now=clock()
            )
            handed = await self._database.write(finish)
            if answer.state == "paid" and handed.state != "paid":
                log.error("collection %s is %s, but the payment system says paid", handed.id, handed.state)
            log.info("collection %s is handed over and %s", handed.id, handed.state)
            count += 1
        return count

    async def _claim(self, hook: HookCommand, now: datetime) -> Collection | None:
        until = now + timedelta(seconds=hook.timeout_s + CLAIM_MARGIN_S)
        return await self._database.write(lambda c: collection_sql.claim_next(c, now=now, until=until))

    async def _put_off(self, claimed: Collection, failure: HookFailed, now: datetime) -> None:
        put_off = partial(
            collection_sql.put_off, claimed=claimed, problem=failure.problem, actor=self._actor, now=now
        )
        again_at = await self._database.write(put_off)
        log.warning("collection %s: %s; tried again from %s", claimed.id, failure, again_at or "never")
