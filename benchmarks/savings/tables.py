"""The tables of docs/savings.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from benchmarks.load.report import Table, table
from benchmarks.savings.comparing import Row, compare
from benchmarks.savings.idle import added_ms, medians_ms
from benchmarks.savings.interval import Estimate
from benchmarks.savings.kept import shares
from benchmarks.savings.measured import Measured
from benchmarks.savings.replay import SETTINGS, WHOLE, Session

SIDES = [side for side in SETTINGS if side != WHOLE]
SHARES = (
    "prices, messages", "default", "sessions with a higher bill", "bill", "input tokens, median session",
    "input tokens, all", "prefix-cache hit rate", "TTFT p50",
)  # fmt: skip
AMOUNTS = (
    "prices, messages", "default", "bill, USD", "of it compression", "prefix-cache hit rate", "TTFT p50, ms",
    "latency p50, ms",
)  # fmt: skip
QUESTIONS = (
    "passages in", "default", "input tokens, median question", "input tokens, all", "answer kept, %", "TTFT p50",
    "TTFT p50, ms",
)  # fmt: skip
KEPT = (
    "default", "calls", "values kept, %", "calls with all of theirs, %", "both, in tool results alone, %",
    "receipts that agree",
)  # fmt: skip
BLOCKS = ("prices, messages", "default", "blocks", "compressed", "their tokens left", "sent whole, and why")
IDLE = ("without a default, p50 ms", "with one, p50 ms", "added, ms")


def both(pair: tuple[float, float], digits: int) -> str:
    return " → ".join(f"{value:,.{digits}f}" for value in pair)


def percent(estimate: Estimate) -> str:
    return Estimate(100 * estimate.value, 100 * estimate.low, 100 * estimate.high).shown(1)


def compared(measured: Measured) -> list[tuple[str, str, Row]]:
    return [
        (name, side, compare(sessions, side))
        for name, sessions in measured.sessions.items()
        for side in SIDES
    ]


def session_shares(rows: Sequence[tuple[str, str, Row]]) -> Table:
    return table(SHARES, [
        [name, side, f"{row.dearer} of {row.sessions}", row.bill.shown(), row.median_tokens.shown(),
         row.total_tokens.shown(), row.hit_rate.shown(), row.ttft.shown(2)]
        for name, side, row in rows
    ])  # fmt: skip


def session_amounts(rows: Sequence[tuple[str, str, Row]]) -> Table:
    return table(AMOUNTS, [
        [name, side, both(row.usd, 4), f"{row.compression_usd:.4f}", both(row.hit_rates, 3), both(row.ttft_ms, 1),
         both(row.latency_ms, 1)]
        for name, side, row in rows
    ])  # fmt: skip


def questions(measured: Measured) -> Table:
    rows = []
    for shape, sessions in measured.questions.items():
        for side in SIDES:
            row, kept = compare(sessions, side), shares(measured.kept[f"{shape}, {side}"])
            rows.append(
                [shape, side, row.median_tokens.shown(), row.total_tokens.shown(), percent(kept["evidence"]),
                 row.ttft.shown(2), both(row.ttft_ms, 1)]
            )  # fmt: skip
    return table(QUESTIONS, rows)


def values(measured: Measured) -> Table:
    rows = []
    for side in SIDES:
        if some := measured.kept.get(f"sessions, {side}"):
            kept = shares(some)
            alone = f"{percent(kept['in results'])}; {percent(kept['all of it in results'])}"
            rows.append(
                [side, str(len(some)), percent(kept["evidence"]), percent(kept["all of it"]), alone,
                 agreeing(measured, "sessions", side)]
            )  # fmt: skip
    return table(KEPT, rows)


def agreeing(measured: Measured, what: str, side: str) -> str:
    some = measured.kept[f"{what}, {side}"]
    return f"{sum(each.same_tokens for each in some):,} of {sum(each.compressed for each in some):,}"


def blocks(measured: Measured) -> Table:
    every = {
        **measured.sessions,
        **{f"twenty passages, {shape}": some for shape, some in measured.questions.items()},
    }
    rows = [_blocks_of(name, side, sessions) for name, sessions in every.items() for side in SIDES]
    return table(BLOCKS, rows)


def _blocks_of(name: str, side: str, sessions: Sequence[Session]) -> list[str]:
    found = [block for session in sessions for reply in session.replies[side] for block in reply.blocks]
    receipts = [block["receipt"] for block in found if block.get("receipt")]
    before, after = (sum(receipt[of] for receipt in receipts) for of in ("original_tokens", "output_tokens"))
    reasons = Counter(block["reason"] for block in found if not block.get("receipt"))
    left = f"{after / before:.3f}" if before else ""
    why = ", ".join(f"{reason} {count:,}" for reason, count in reasons.most_common())
    return [name, side, f"{len(found):,}", f"{len(receipts):,}", left, why]


def idle(measured: Measured) -> Table:
    medians = medians_ms(measured.idle)
    cells = [f"{medians['without']:.2f}", f"{medians['with']:.2f}", added_ms(measured.idle).shown(2)]
    return table(IDLE, [cells])
