"""The project's targets for compression inside chat, and what was measured of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.load.report import Table, table
from benchmarks.savings import passages
from benchmarks.savings.comparing import Row, compare
from benchmarks.savings.idle import added_ms
from benchmarks.savings.kept import shares
from benchmarks.savings.measured import Measured, key
from benchmarks.savings.measuring import FIRST, WITHOUT_SYSTEM
from benchmarks.savings.tables import SIDES, percent

RATIO, KEEP = SIDES
Lines = Iterator[list[str]]


def targets(measured: Measured, rows: Sequence[tuple[str, str, Row]]) -> Table:
    """Those of which something was measured."""
    lines = [*_of_sessions(rows), *_of_questions(measured), *_kept(measured), *_idle(measured)]
    return table(["target", "goal", "measured"], lines)


def _of_sessions(rows: Sequence[tuple[str, str, Row]]) -> Lines:
    if rows:
        total, dearer = (
            sum(of) for of in zip(*((row.sessions, row.dearer) for *_, row in rows), strict=True)
        )
        yield ["replayed sessions with a higher bill, all prices", "0", f"{dearer} of {total:,}"]
    for name, side, row in rows:
        if name == key(FIRST, WITHOUT_SYSTEM):
            goal = "≤ 0.62" if side == RATIO else "≤ 0.75"
            what = f"input tokens of a session without its system message, {side}"
            yield [what, goal, row.median_tokens.shown()]
    for name, side, row in rows:
        if name.startswith(f"{FIRST}, "):
            yield [
                f"prefix-cache hit rate, of that uncompressed, {side}, {name.split(', ')[1]}", "≥ 0.98",
                row.hit_rate.shown(),
            ]  # fmt: skip


def _of_questions(measured: Measured) -> Lines:
    sessions = measured.questions.get(passages.SHAPES[0], [])
    found = {side: compare(sessions, side) for side in SIDES} if sessions else {}
    for side, row in found.items():
        what = f"input tokens of a question over twenty passages, {side}"
        yield [what, "≤ 0.36", row.median_tokens.shown()]
    if found:
        yield ["TTFT p50 of the same, target_ratio 0.3", "≤ 0.6", found[RATIO].ttft.shown(2)]


def _kept(measured: Measured) -> Lines:
    for what, told in (("sessions", "all values of a call"), (passages.SHAPES[0], "an answer")):
        if some := measured.kept.get(key(what, KEEP)):
            yield [f"evidence kept at {KEEP}, %: {told}", "95 ± 2", percent(shares(some)["all of it"])]


def _idle(measured: Measured) -> Lines:
    if measured.idle:
        yield ["added latency where nothing is compressed, ms", "≤ 0.2", added_ms(measured.idle).shown(2)]
