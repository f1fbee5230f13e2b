"""What must be true of the ledger after every transaction, and what must be true when all has come to rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tests.simulation.store import Store
from tests.simulation.tree import WatchedTree

_BALANCES = """
SELECT w.id, w.posted_nano_usd, w.held_nano_usd, w.collected_nano_usd, w.spend_limit_nano_usd,
    (SELECT coalesce(sum(amount_nano_usd), 0) FROM holds h WHERE h.workspace_id = w.id),
    (SELECT coalesce(sum(cost_nano_usd - written_off_nano_usd), 0) FROM usage_events e WHERE e.workspace_id = w.id),
    (SELECT coalesce(sum(cost_nano_usd), 0) FROM usage_events e WHERE e.workspace_id = w.id AND e.offline),
    (SELECT coalesce(sum(nano_usd), 0) FROM collections c WHERE c.workspace_id = w.id AND c.state != 'void'),
    w.credited_nano_usd, (SELECT coalesce(-sum(nano_usd), 0) FROM adjustments a WHERE a.workspace_id = w.id)
FROM workspaces w"""
_MONTHS = """
SELECT w.id, e.month, sum(e.cost_nano_usd - e.written_off_nano_usd + coalesce(a.nano_usd, 0)),
    sum(iif(e.offline, e.cost_nano_usd, 0)),
    iif(e.month = w.month, w.month_posted_nano_usd,
        (SELECT m.posted_nano_usd FROM workspace_months m WHERE m.workspace_id = w.id AND m.month = e.month)),
    w.monthly_limit_nano_usd
FROM workspaces w JOIN usage_events e ON e.workspace_id = w.id LEFT JOIN adjustments a ON a.event_id = e.event_id
GROUP BY w.id, e.month"""
# Chats whose credit is not what they were dearer for their compression. What was written off of both is not owed.
_CREDITS = """
SELECT c.event_id, count(a.id), coalesce(-sum(a.nano_usd), 0), max(0, min(c.cost_nano_usd - c.written_off_nano_usd,
    c.compression_nano_usd - c.saved_nano_usd - c.written_off_nano_usd - coalesce(p.written_off_nano_usd, 0))) AS due
FROM usage_events c LEFT JOIN usage_events p ON p.event_id = c.paired_with
LEFT JOIN adjustments a ON a.event_id = c.event_id
WHERE c.compression IS NOT NULL AND c.rowid > ? GROUP BY c.event_id
HAVING count(a.id) != (due > 0) OR coalesce(-sum(a.nano_usd), 0) != due"""
# By what is posted to them and held, and by what events and holds say that they count in them.
_BUDGETS = """
SELECT c.id, c.posted_nano_usd, c.held_nano_usd, b.limit_nano_usd,
    (SELECT coalesce(sum(e.cost_nano_usd - e.written_off_nano_usd), 0) FROM usage_events e, json_each(e.budgets) n
        WHERE n.value = c.id),
    (SELECT coalesce(sum(h.amount_nano_usd), 0) FROM holds h, json_each(h.budgets) n WHERE n.value = c.id),
    (SELECT coalesce(sum(e.cost_nano_usd), 0) FROM usage_events e, json_each(e.budgets) n
        WHERE n.value = c.id AND e.offline)
FROM budget_counters c JOIN budgets b ON b.id = c.budget_id"""
# Of the budgets of its workspace, each event and each hold counts in one period; of those of persons and tags an event
# in those that it names. What a hold names is its request's to know.
_UNCOUNTED = """
SELECT o.id FROM (
    SELECT event_id AS id, workspace_id, budgets, person, ',' || coalesce(tags, '') || ',' AS tags, 1 AS known
        FROM usage_events WHERE rowid > ?
    UNION ALL SELECT event_id, workspace_id, budgets, NULL, '', 0 FROM holds) o
JOIN budgets b ON b.workspace_id = o.workspace_id AND (o.known OR b.scope NOT IN ('person', 'tag'))
WHERE (SELECT count(*) FROM json_each(o.budgets) n
    WHERE n.value LIKE b.id || ':%' || CASE b.scope WHEN 'person' THEN coalesce(':' || o.person, '') ELSE '' END)
!= CASE b.scope WHEN 'person' THEN o.person IS NOT NULL
    WHEN 'tag' THEN instr(o.tags, ',' || substr(b.subject, instr(b.subject, ':') + 1) || ',') > 0 ELSE 1 END"""
_EVENTS = """
SELECT rowid, event_id, request_id, paired_with, compression_nano_usd FROM usage_events WHERE rowid > ?"""
_HAS_SPOOL = "SELECT 1 FROM sqlite_master WHERE name = 'spooled_events'"
_OFFLINE_SPOOLED = """
SELECT json_extract(event, '$.workspace_id'), sum(json_extract(event, '$.cost_nano_usd')) FROM spooled_events
WHERE refusal IS NULL AND json_extract(event, '$.offline') GROUP BY 1"""
_HOLDS = "SELECT event_id, owner, expires_at FROM holds"


@dataclass
class Witness:
    """What the servers and their requests saw, by event id. It outlives every crash."""

    # Requests that were told of their hold and have not begun to settle or to release it, on servers that live.
    running: set[str] = field(default_factory=set)
    # Of the same kind, those that were taken from the allowance: by which incarnation, for whom, how much.
    offline: dict[str, tuple[str, str, int]] = field(default_factory=dict)
    # What a server said is in the ledger or in its spool: its cost.
    promised: dict[str, int] = field(default_factory=dict)
    # Of events that must be posted together, the other one; and what the chat's event must say of the other's cost.
    pairs: dict[str, str] = field(default_factory=dict)
    part_costs: dict[str, int] = field(default_factory=dict)

    def settle_together(self, events: Sequence[tuple[str, int]]) -> None:
        """A request's events by their costs, its own first, before any of them is written."""
        if len(events) == 2:
            (chat, _), (part, part_cost) = events
            self.pairs |= {chat: part, part: chat}
            self.part_costs[chat] = part_cost


class Auditor:
    """Looks at the store after each commit; `violations` is what it found, in words."""

    def __init__(self, store: Store, witness: Witness, should_be_held: Callable[[str], bool]) -> None:
        """`should_be_held` tells of a running request whether nothing kept its server from renewing its hold."""
        self._store = store
        self._driver = store.driver
        self._witness = witness
        self._should_be_held = should_be_held
        self._last_row = 0
        self._requests: dict[str, str] = {}
        self._leases: dict[str, float] = {}
        self._tree = WatchedTree(store)
        self.posted: set[str] = set()
        self.violations: list[str] = []

    def look(self) -> None:
        """After a transaction of the ledger."""
        self._check_credits(since=self._last_row)
        self._check_budgets(since=self._last_row)
        self._read_events()
        self._check_balances()
        self._check_months()
        self._check_holds()
        for what in self._tree.look(anew=False):
            self._violate(what)

    def look_at_allowance(self, server: str, spool: Store, allowance: int) -> None:
        """After a request was taken from a server's allowance: what is under way, and what waits in its spool."""
        spent: Counter[str] = Counter()
        for owner, workspace_id, amount in self._witness.offline.values():
            if owner == server:
                spent[workspace_id] += amount
        if spool.driver.execute(_HAS_SPOOL).fetchone():
            spent.update(dict(spool.driver.execute(_OFFLINE_SPOOLED).fetchall()))
        for workspace_id, nano_usd in spent.items():
            if nano_usd > allowance:
                self._violate(
                    f"{workspace_id}: {server} let it spend {nano_usd} of an allowance of {allowance}"
                )

    def look_at_rest(self, spooled: Iterable[str]) -> None:
        """When nothing went wrong for a while."""
        if self._leases:
            self._violate(f"{len(self._leases)} holds are still open at rest")
        self._check_credits(since=0)
        for what in self._tree.look(anew=True):
            self._violate(what)
        if waiting := self._tree.waiting():
            self._violate(f"{waiting} rows still wait for the log at rest")
        left = set(spooled)
        if left:
            self._violate(f"{len(left)} events still wait in a spool at rest")
        for event_id, cost in self._witness.promised.items():
            if event_id not in self.posted and event_id not in left:
                self._violate(f"an event of {cost} that was said to be recorded is lost: {event_id}")

    def _read_events(self) -> None:
        rows = self._driver.execute(_EVENTS, (self._last_row,)).fetchall()
        self.posted |= {event_id for _, event_id, *_ in rows}
        for row, event_id, request_id, paired_with, part_cost in rows:
            self._last_row = row
            known = self._requests.setdefault(request_id, event_id)
            if known not in (event_id, self._witness.pairs.get(event_id)):
                self._violate(f"request {request_id} has two events")
            self._check_pair(event_id, paired_with, part_cost)

    def _check_pair(self, event_id: str, paired_with: str | None, part_cost: int) -> None:
        """A chat and the compression of its prompt are in the ledger together, and name each other."""
        other, due = self._witness.pairs.get(event_id), self._witness.part_costs.get(event_id, 0)
        if other is not None and other not in self.posted:
            self._violate(f"one of two events that belong together was posted alone: {event_id}")
        if (paired_with, part_cost) != (other, due):
            self._violate(
                f"{event_id} names {paired_with} at {part_cost}, and was settled with {other} at {due}"
            )

    def _check_balances(self) -> None:
        for row in self._driver.execute(_BALANCES):
            workspace_id, posted, held, collected, limit, holds, events, offline, cut, credited, given = row
            if (held, posted, collected, credited) != (holds, events, cut, given):
                self._violate(
                    f"{workspace_id}: held, posted, collected, credited are {(held, posted, collected, credited)}, "
                    f"and add up to {(holds, events, cut, given)}"
                )
            if limit is not None and posted - credited > limit + offline:
                self._violate(
                    f"{workspace_id}: posted {posted} of a limit of {limit} (and {offline} offline)"
                )

    def _check_budgets(self, *, since: int) -> None:
        for counter, posted, held, limit, events, holds, offline in self._driver.execute(_BUDGETS):
            if (posted, held) != (events, holds):
                self._violate(
                    f"{counter}: posted, held are {(posted, held)}, and add up to {(events, holds)}"
                )
            if posted + held > limit + offline:
                self._violate(
                    f"{counter}: {posted} and {held} of a budget of {limit} (and {offline} offline)"
                )
        for (event_id,) in self._driver.execute(_UNCOUNTED, (since,)):
            self._violate(f"{event_id} does not count in each budget of its workspace")

    def _check_credits(self, *, since: int) -> None:
        for event_id, credits, given, due in self._driver.execute(_CREDITS, (since,)):
            self._violate(f"{event_id} was dearer by {due}, and got {given} in {credits} credits")

    def _check_months(self) -> None:
        for workspace_id, month, charged, offline, stored, limit in self._driver.execute(_MONTHS):
            if stored != charged:
                self._violate(
                    f"{workspace_id}: {stored} is posted in {month}, and its events add up to {charged}"
                )
            if limit is not None and charged > limit + offline:
                self._violate(
                    f"{workspace_id}: posted {charged} in {month} of a limit of {limit} (and {offline} offline)"
                )

    def _check_holds(self) -> None:
        before, now_s = self._leases, self._store.clock()
        self._leases = {event_id: expires_at for event_id, _, expires_at in self._driver.execute(_HOLDS)}
        for event_id in sorted(self._witness.running - self._leases.keys()):
            self._witness.running.discard(event_id)
            # A server that could not renew for a whole lease is dead to the others.
            if self._should_be_held(event_id):
                left_s = before.get(event_id, now_s) - now_s
                self._violate(
                    f"the hold of a running request is gone, {left_s:.1f} s before its lease ends: {event_id}"
                )

    def _violate(self, what: str) -> None:
        if what not in self.violations:
            self.violations.append(what)
