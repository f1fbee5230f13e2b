"""Wrong changes to the code that holds, settles, spools and replays a chat with the compression of its prompt."""

from __future__ import annotations

from tests.mutants.mutant import SIMULATION, Mutant

PARTS = "tests/serve/money/test_parts.py"
DEARER = "tests/billing/ledger/test_dearer.py"
PAIRS = "tests/billing/ledger/test_pairs.py"
PRICED = "tests/serve/chat/test_priced_compression.py"
SHARED = "tests/serve/chat/test_shared_compression.py"
WORTH = "tests/serve/prompt_compression/test_worth.py"

PAIR_MUTANTS = (
    Mutant(
        "a chat is settled without the compression of its prompt",
        "serve/money/held_request.py",
        "            held = [self, *self._used_parts()]\n",
        "            held = [self]\n",
        (f"{PARTS}::test_a_part_is_settled_with_its_request",),
    ),
    Mutant(
        "a compression is charged though its chat is given back",
        "serve/money/held_request.py",
        "        if not self.is_part and self._is_owed(is_our_fault):\n",
        "        if self._is_owed(is_our_fault):\n",
        (f"{PARTS}::test_who_leaves_before_pays_for_neither",),
    ),
    Mutant(
        "a compression is given back after its chat was settled",
        "serve/money/admission.py",
        "            if is_part and not held.is_settled:\n",
        "            if is_part:\n",
        (f"{PARTS}::test_a_part_that_waits_in_the_spool_keeps_its_hold",),
    ),
    Mutant(
        "a chat and its compression do not name each other",
        "billing/usage.py",
        "    if len(events) == 1:\n",
        "    if len(events) > 0:\n",
        (SIMULATION,),
    ),
    Mutant(
        "a chat does not say what its compression costs",
        "billing/usage.py",
        "    spent = compression.cost_nano_usd\n",
        "    spent = 0\n",
        (SIMULATION,),
    ),
    Mutant(
        "of a pair one is posted",
        "billing/ledger/ledger_sql.py",
        "    posted = [_post(connection, event, amount) for event, amount in zip(events, freed, strict=True)]\n",
        "    posted = [_post(connection, events[0], freed[0])] * len(events)\n",
        (SIMULATION,),
    ),
    Mutant(
        "a workspace is locked between the two holds of a pair",
        "billing/ledger/ledger_sql.py",
        "    freed = [_closed(connection, event) for event in events]\n",
        "    freed = (_closed(connection, event) for event in events)\n",
        (f"{PAIRS}::test_a_sweep_that_has_one_of_the_two_holds_is_waited_for",),
    ),
    Mutant(
        "of a pair one is spooled",
        "billing/ledger/recording.py",
        "            await self._spool.append(*events)\n",
        "            await self._spool.append(*events[:1])\n",
        (f"{PAIRS}::test_neither_is_posted_without_the_other_during_an_outage",),
    ),
    Mutant(
        "a line of a batch is charged that somebody else has",
        "billing/batches/line_sql.py",
        "    if not connection.execute(_ENDED, parameters).rowcount:\n",
        "    if connection.execute(_ENDED, parameters).rowcount < 0:\n",
        ("tests/billing/batches/test_batch_store.py::test_a_line_and_its_money_are_written_together_once",),
    ),
    Mutant(
        "a line of a batch is charged though its end was not written",
        "billing/ledger/recording.py",
        "            also(connection)\n",
        "            pass\n",
        ("tests/billing/batches/test_batch_store.py::test_a_line_and_its_money_are_written_together_once",),
    ),
    Mutant(
        "a pair is replayed event by event",
        "billing/ledger/recording.py",
        "        if spooled.event_id == expected:\n",
        "        if False:\n",
        (f"{PAIRS}::test_a_replay_moves_both_at_once_wherever_a_piece_of_the_spool_ends",),
    ),
    Mutant(
        "a replay parts a pair where a piece of the spool ends",
        "billing/ledger/recording.py",
        "    if may_have_more and expected is not None:\n",
        "    if False:\n",
        (f"{PAIRS}::test_a_replay_moves_both_at_once_wherever_a_piece_of_the_spool_ends",),
    ),
    Mutant(
        "of a pair that was set aside one is tried again",
        "billing/ledger/spool.py",
        "            or_(spooled_events.c.event_id == event_id, NAMED.in_([event_id])),\n",
        "            spooled_events.c.event_id == event_id,\n",
        (f"{PAIRS}::test_what_was_set_aside_is_tried_again_with_what_belongs_to_it",),
    ),
    Mutant(
        "a block that was paid for is charged again",
        "serve/prompt_compression/outcome.py",
        "        self.is_paid = is_paid\n",
        "        self.is_paid = False\n",
        (f"{PRICED}::test_a_block_that_was_paid_for_is_free_in_later_turns",),
    ),
    Mutant(
        "a block that nobody paid for is free",
        "serve/prompt_compression/service.py",
        "        is_free = worth.compression.is_free\n",
        "        is_free = True\n",
        (f"{PRICED}::test_what_was_compressed_for_nobody_is_charged_to_who_uses_it",),
    ),
    Mutant(
        "a receipt above its hold is charged",
        "serve/prompt_compression/compressed_chat.py",
        '            self.result = self.result.without_charged("failed")\n',
        "            self.part = part\n",
        ("tests/serve/chat/test_broken_compressor.py",),
    ),
    Mutant(
        "a compression whose usage was lost is paid",
        "serve/money/held_request.py",
        "            self._end_settlement(is_paid=is_paid)\n",
        "            self._end_settlement(is_paid=True)\n",
        (f"{SHARED}::test_what_was_lost_is_charged_to_the_next",),
    ),
    Mutant(
        "two chats pay for one compression at a time",
        "serve/prompt_compression/outcome.py",
        "        if self.is_paid or self._claimed is not None:\n",
        "        if self.is_paid:\n",
        ("tests/serve/prompt_compression/test_shared_result.py",),
    ),
    Mutant(
        "a compression pays that rounding makes dearer",
        "serve/prompt_compression/worth.py",
        "ROUNDING_PICO_USD = 2 * PICO_PER_NANO\n",
        "ROUNDING_PICO_USD = 0\n",
        (f"{WORTH}::test_what_is_saved_covers_the_rounding_of_all_three_costs",),
    ),
    Mutant(
        "a block that is sent whole does not count towards the minimum",
        "serve/prompt_compression/worth.py",
        "(tokens.sent if pays else tokens.whole) - BESIDE_TOKENS",
        "(tokens.sent if pays else 0) - BESIDE_TOKENS",
        (f"{WORTH}::test_a_block_that_is_sent_whole_counts_towards_the_request_s_minimum",),
    ),
    Mutant(
        "a chat that was dearer for its compression is credited nothing",
        "billing/ledger/ledger_sql.py",
        "    if dearer:\n        adjustment_rows",
        "    if dearer < 0:\n        adjustment_rows",
        (f"{DEARER}::test_a_chat_of_which_more_was_sent_is_credited_the_difference",),
    ),
    Mutant(
        "a chat that the ledger knew is credited again",
        "billing/ledger/ledger_sql.py",
        "        if one.is_new and event.compression is not None:\n",
        "        if event.compression is not None:\n",
        (f"{DEARER}::test_a_settlement_whose_answer_was_lost_credits_once",),
    ),
    Mutant(
        "a compression is charged although its whole prompt was not counted",
        "serve/prompt_compression/compressed_chat.py",
        "        is_dearer = self.saved_nano_usd < self.cost_nano_usd\n",
        "        is_dearer = self.original_tokens is not None and self.saved_nano_usd < self.cost_nano_usd\n",
        (
            "tests/serve/chat/test_never_dearer.py::"
            "test_a_chat_whose_whole_prompt_was_not_counted_pays_for_no_compression",
        ),
    ),
)
