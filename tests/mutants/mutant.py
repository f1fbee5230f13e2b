"""One small wrong change of the code that moves money, and the tests that must notice it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SIMULATION = "tests/simulation/test_many_schedules.py::test_in_no_schedule_is_money_lost_or_spent_twice"

HELD_REQUEST = "tests/serve/money/test_held_request.py"
ADJUSTMENTS = "tests/billing/adjustments/test_adjustments.py"
ARCHIVE = "tests/billing/archive/test_archive.py"


@dataclass(frozen=True)
class Mutant:
    """In `path`, `before` stands exactly once, and `after` in its place must make a test of `tests` fail."""

    name: str
    path: str
    before: str
    after: str
    tests: tuple[str, ...]

    def mutated(self, root: Path = ROOT) -> str:
        """The file's text with the change. Raises `ValueError` where the code is not what it was."""
        text = (root / self.path).read_text()
        found = text.count(self.before)
        if found != 1:
            raise ValueError(f"mutant {self.name!r}: {self.path} has {found} times what is to be changed")
        return text.replace(self.before, self.after)


MUTANTS = (
    Mutant(
        "another server's leases are closed before they ended",
        "billing/ledger/leases.py",
        'or_(_h.expires_at <= _now, _h.expires_at > _now + bindparam("absurd_s"))',
        'or_(_h.expires_at > 0, _h.expires_at > _now + bindparam("absurd_s"))',
        (
            "tests/billing/ledger/test_leases.py::test_a_lease_that_was_renewed_after_it_was_looked_at_is_not_closed",
        ),
    ),
    Mutant(
        "a collection is cut without the row's lock",
        "billing/collections/collection_sql.py",
        "connection.execute(statement.with_for_update(key_share=True)).scalar_one()",
        "connection.execute(statement).scalar_one()",
        (
            "tests/billing/collections/test_collection_locks.py::test_two_servers_that_cut_one_balance_make_one_collection",
        ),
    ),
    Mutant(
        "a lease is swept at the first look",
        "billing/ledger/leases.py",
        "if seen.looks < self._times.looks:",
        "if seen.looks < 0:",
        ("tests/billing/ledger/test_dead_owners.py::test_a_lease_is_dead_at_the_third_look_a_renewal_apart",),
    ),
    Mutant(
        "leases are not renewed",
        "billing/ledger/leases.py",
        'connection.execute(_RENEW, {"mine": owner, "due_s": times.due_s, "ttl_s": times.ttl_s})',
        'connection.execute(_RENEW, {"mine": "", "due_s": times.due_s, "ttl_s": times.ttl_s})',
        (SIMULATION,),
    ),
    Mutant(
        "the hold of spooled usage is taken for a forgotten one",
        "billing/ledger/leases.py",
        "                unknown -= await self._spool.waiting_ids()\n",
        "                unknown -= frozenset()\n",
        (
            "tests/billing/ledger/test_leases.py::test_the_hold_of_usage_that_waits_in_the_spool_is_kept_for_it",
        ),
    ),
    Mutant(
        "a failed release is not remembered",
        "billing/ledger/leases.py",
        "            known = await self._database.read(partial(owned, owner=self.owner))\n",
        "            known = list[str]()\n",
        (SIMULATION,),
    ),
    Mutant(
        "an opening is not known before it is over",
        "billing/ledger/ledger.py",
        "        self._leases.begin(hold.event_id)\n        try:\n            return await self._opened(hold)\n",
        "        try:\n            return await self._opened(hold)\n",
        (
            "tests/billing/ledger/test_leases.py::test_an_opening_that_is_under_way_is_not_taken_for_a_forgotten_hold",
        ),
    ),
    Mutant(
        "a hold does not look at what others hold",
        "billing/ledger/ledger_sql.py",
        "_committed + _amount <= _w.spend_limit_nano_usd",
        "_w.posted_nano_usd + _amount <= _w.spend_limit_nano_usd",
        ("tests/billing/ledger/test_ledger.py::test_no_concurrency_overspends",),
    ),
    Mutant(
        "a hold does not look at the month",
        "billing/ledger/ledger_sql.py",
        "        _w.month == this_month(),\n        bindparam(",
        "        bindparam(",
        (
            "tests/billing/ledger/test_monthly_totals.py::test_a_clock_that_was_a_month_ahead_once_leaves_the_months_limit_on",
        ),
    ),
    Mutant(
        "what exceeds a hold takes what others hold",
        "billing/ledger/balances.py",
        "        limit - posted - held\n",
        "        limit - posted\n",
        ("tests/billing/ledger/test_theorem.py::test_a_cost_above_its_hold_takes_what_no_other_hold_has",),
    ),
    Mutant(
        "a charge beyond its hold is not bounded",
        "billing/ledger/ledger_sql.py",
        "    charge = min(event.cost_nano_usd, max(covered, room))\n",
        "    charge = covered = event.cost_nano_usd\n",
        (
            "tests/billing/ledger/test_theorem.py::test_a_server_that_was_stopped_until_its_hold_was_swept_charges_only_what_is_left",
        ),
    ),
    Mutant(
        "an event that was there already is charged again",
        "billing/ledger/ledger_sql.py",
        '    connection.execute(_UNCHARGE, {"workspace": event.workspace_id, "charge": charge.nano_usd})\n',
        "",
        ("tests/billing/ledger/test_ledger.py::test_settling_again_changes_nothing_even_all_at_once",),
    ),
    Mutant(
        "a settlement does not give its hold back",
        "billing/ledger/ledger_sql.py",
        "        return _Freed(amount, amount if key_id is not None else 0, counters)\n",
        "        return _Freed()\n",
        (
            "tests/billing/ledger/test_ledger.py::test_a_hold_is_set_aside_and_a_settlement_charges_what_was_used",
        ),
    ),
    Mutant(
        "replay removes what the ledger did not take",
        "billing/ledger/recording.py",
        "                return Replayed(posted, known, refused, await spool.count_waiting())\n",
        "                await spool.remove(spooled.event_id)\n                continue\n",
        (
            "tests/billing/ledger/test_spool.py::test_replay_stops_where_the_ledger_is_still_away_and_loses_nothing",
        ),
    ),
    Mutant(
        "replay leaves in the spool what it posted",
        "billing/ledger/recording.py",
        "                await spool.remove(spooled.event_id)\n",
        "                return Replayed(posted, known, refused, 0)\n",
        (
            "tests/billing/ledger/test_spool.py::test_usage_that_the_ledger_cannot_take_is_degraded_and_arrives_later",
        ),
    ),
    Mutant(
        "what waits in the spool is not counted against the allowance",
        "billing/ledger/recording.py",
        "        spent = self._open[hold.workspace_id] + spooled.get(hold.workspace_id, 0)\n",
        "        spent = self._open[hold.workspace_id]\n",
        (
            "tests/billing/ledger/test_offline_allowance.py::test_what_was_used_counts_and_not_what_it_might_have_cost",
        ),
    ),
    Mutant(
        "usage is not spooled when the ledger is away",
        "billing/ledger/recording.py",
        "            await self._spool.append(*events)\n",
        "            pass\n",
        (
            "tests/billing/ledger/test_spool.py::test_usage_that_the_ledger_cannot_take_is_degraded_and_arrives_later",
        ),
    ),
    Mutant(
        "the hold of a client that left while it was opened is kept",
        "billing/ledger/ledger.py",
        "            self._begin(self._release_after(opening))\n",
        "            pass\n",
        ("tests/billing/ledger/test_ledger.py::test_a_cancelled_hold_is_given_back",),
    ),
    Mutant(
        "a month that was left is counted from zero when it comes again",
        "billing/ledger/balances.py",
        "    connection.execute(moving.values(month=row.now_month, month_posted_nano_usd=kept))\n",
        "    connection.execute(moving.values(month=row.now_month, month_posted_nano_usd=0))\n",
        (
            "tests/billing/ledger/test_monthly_totals.py::test_a_clock_that_was_a_month_ahead_once_leaves_the_months_limit_on",
        ),
    ),
    Mutant(
        "a collection that another server hands over just now is handed over",
        "billing/collections/collection_sql.py",
        '    waits = and_(_c.state == "open", _c.handed_over_at.is_(None), due)\n',
        '    waits = and_(_c.state == "open", _c.handed_over_at.is_(None))\n',
        ("tests/billing/collections/test_payment_hook.py::test_of_many_servers_one_runs_the_hook",),
    ),
    Mutant(
        "an answer is written over what was closed meanwhile",
        "billing/collections/collection_sql.py",
        "    if not still_claimed:\n        return found\n",
        "",
        ("tests/billing/collections/test_payment_hook.py::test_what_an_operator_closed_meanwhile_stays_so",),
    ),
    Mutant(
        "a voided collection stays collected",
        "billing/collections/collection_sql.py",
        '    if wanted == "void":\n        _move_collected(connection, found.workspace_id, -found.nano_usd)\n',
        "",
        (
            "tests/billing/collections/test_collections.py::test_a_voided_amount_is_collected_again_under_another_key",
        ),
    ),
    Mutant(
        "a request is settled as often as it is asked for",
        "serve/money/held_request.py",
        "        if self._settling is None:\n",
        "        if True:\n",
        (f"{HELD_REQUEST}::test_settling_twice_is_settling_once",),
    ),
    Mutant(
        "more than was held is charged",
        "serve/money/held_request.py",
        "not self.most.covers(usage)",
        "not self.most.covers(self.usage)",
        (f"{HELD_REQUEST}::test_more_than_was_held_is_never_charged",),
    ),
    Mutant(
        "who leaves pays nothing for what was read",
        "serve/money/held_request.py",
        "        return self.usage.prompt_tokens > 0\n",
        "        return False\n",
        (f"{HELD_REQUEST}::test_who_leaves_pays_for_what_the_model_read_and_for_nothing_before",),
    ),
    Mutant(
        "a request that failed keeps its hold",
        "serve/money/held_request.py",
        "            await self.ledger.release(self.hold, now=self.clock())\n",
        "            pass\n",
        (f"{HELD_REQUEST}::test_a_failure_of_ours_costs_nothing",),
    ),
    Mutant(
        "a request that failed counts against the limit",
        "serve/money/held_request.py",
        "        self._released = True\n",
        "",
        (f"{HELD_REQUEST}::test_limits_count_what_was_used_and_nothing_of_what_failed",),
    ),
    Mutant(
        "an upward adjustment takes what is held of a limit",
        "billing/adjustments/adjustments.py",
        "row.posted_nano_usd - row.credited_nano_usd + row.held_nano_usd",
        "row.posted_nano_usd - row.credited_nano_usd",
        (f"{ADJUSTMENTS}::test_an_upward_adjustment_is_owed_and_never_passes_a_limit",),
    ),
    Mutant(
        "an upward adjustment takes what is held of a month's limit",
        "billing/adjustments/adjustments.py",
        "row.month_posted_nano_usd + row.held_nano_usd",
        "row.month_posted_nano_usd",
        (f"{ADJUSTMENTS}::test_the_monthly_limit_bounds_an_upward_adjustment_too",),
    ),
    Mutant(
        "a refund's key takes another amount for the same request",
        "billing/adjustments/adjustment.py",
        "(self.kind, self.event_id, self.reason, self.refunds_rest)",
        "(self.kind, self.event_id, self.reason, made.refunds_rest)",
        (f"{ADJUSTMENTS}::test_the_same_key_is_one_adjustment_and_another_content_is_refused",),
    ),
    Mutant(
        "a stretch is taken for proven although an event arrived in it",
        "billing/rollups/checkpoint_sql.py",
        "    same = (_c.from_id == stretch.from_id, _c.version == stretch.version)\n",
        "    same = (_c.from_id == stretch.from_id,)\n",
        (
            "tests/billing/books/test_proof.py::test_a_stretch_in_which_an_event_arrives_while_it_is_read_is_not_taken_for_proven",
        ),
    ),
    Mutant(
        "a hold is opened whose usage the database will refuse",
        "billing/ledger/ledger_sql.py",
        """        bindparam("event_id", type_=String) >= func.coalesce(archived_bound(), ""),\n""",
        '        bindparam("event_id", type_=String) >= "",\n',
        (f"{ARCHIVE}::test_a_server_whose_clock_shows_an_archived_month_serves_nobody",),
    ),
    Mutant(
        "a spooled event is posted under whatever its number lists",
        "billing/ledger/recording.py",
        "    if price is None:\n",
        "    if price is None or price:\n",
        (
            "tests/billing/ledger/test_spool.py::test_a_ledger_that_lists_other_prices_under_a_number_charges_what_was_due",
        ),
    ),
    Mutant(
        "a month is archived while its requests hold money",
        "billing/archive/month_sql.py",
        "    if held:\n",
        "    if False:\n",
        (f"{ARCHIVE}::test_a_month_is_not_archived_before_all_of_it_is_settled_and_proven",),
    ),
    Mutant(
        "events are given up for sums that are not there",
        "billing/archive/month_sql.py",
        "    if _kept(connection, month) != sorted(manifest.sums):\n",
        "    if False:\n",
        (f"{ARCHIVE}::test_events_count_until_all_that_is_kept_of_them_is_there",),
    ),
    Mutant(
        "a settlement ends with who waits for it",
        "serve/money/held_request.py",
        "        written = await asyncio.shield(self._settling)\n",
        "        written = await self._settling\n",
        (f"{HELD_REQUEST}::test_a_settlement_goes_on_when_nobody_waits_for_it_any_more",),
    ),
)
