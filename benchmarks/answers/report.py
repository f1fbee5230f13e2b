"""Tables and the picture of answers: each arm's, all suites together and one by one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, median

from benchmarks.answers.arms import WHOLE
from benchmarks.answers.asking import Answer
from benchmarks.answers.pairs import pairs, share_interval
from benchmarks.load.page import tables
from benchmarks.load.plots import Panel, Picture
from benchmarks.load.report import Report, Table, table

HEAD = (
    "context", "right", "95%", "less whole, 95%", "p (McNemar)", "too long", "prompt tokens", "of them cached",
    "$ per 1,000", "TTFT, s", "total, s",
)  # fmt: skip
PITH = "pith"
Answers = Sequence[Answer]


def complete(found: Answers, arms: Sequence[str]) -> list[Answer]:
    """Those of the arms, of the cases that were asked in every one of them."""
    own = [answer for answer in found if answer.arm in arms]
    asked: dict[str, int] = {}
    for answer in own:
        asked[answer.case] = asked.get(answer.case, 0) + 1
    return [answer for answer in own if asked[answer.case] == len(arms)]


def rights(found: Answers, arm: str) -> Mapping[str, bool]:
    return {answer.case: answer.is_right for answer in found if answer.arm == arm}


def cells(found: Answers, arm: str) -> list[str]:
    """One arm's row. Figures are of the requests that fit; times are medians of those that were alone."""
    own = [answer for answer in found if answer.arm == arm]
    sent = [answer for answer in own if answer.fits]
    right = sum(answer.is_right for answer in own)
    low, high = share_interval(right, len(own))
    return [
        arm,
        f"{right / len(own):.1%}",
        f"{100 * low:.1f} to {100 * high:.1f}",
        *_against_whole(found, arm),
        str(len(own) - len(sent)),
        f"{_mean(sent, 'prompt_tokens'):,.0f}",
        f"{_mean(sent, 'cached_tokens'):,.0f}",
        f"{1000 * _mean(sent, 'usd'):.4f}",
        *(_median([answer for answer in sent if answer.is_alone], name) for name in ("ttft_s", "total_s")),
    ]


def _against_whole(found: Answers, arm: str) -> list[str]:
    if arm == WHOLE.name:
        return ["", ""]
    compared = pairs(rights(found, WHOLE.name), rights(found, arm))
    low, high = compared.interval()
    return [f"{low:+.1%} to {high:+.1%}", f"{compared.p_value():.2g}"]


def _mean(sent: Answers, name: str) -> float:
    return fmean(getattr(answer, name) for answer in sent) if sent else 0.0


def _median(alone: Answers, name: str) -> str:
    return f"{median(getattr(answer, name) for answer in alone):.2f}" if alone else ""


def arms_table(found: Answers, arms: Sequence[str]) -> Table:
    return table(HEAD, [cells(found, arm) for arm in arms])


def suites_table(by_suite: Mapping[str, Answers], arms: Sequence[str]) -> Table:
    """Right, in percent."""
    rows = [
        [
            suite,
            str(len(rights(own, WHOLE.name))),
            *(f"{100 * fmean(rights(own, arm).values()):.1f}" for arm in arms),
        ]
        for suite, own in by_suite.items()
    ]
    return table(("right, %", "cases", *arms), rows)


def picture(rows: Sequence[Sequence[str]]) -> Picture:
    """Of the table's rows, under `HEAD`: share right against prompt tokens, a line through the sizes of a selector."""
    lines: dict[str, list[tuple[float, float]]] = {}
    upright: dict[str, list[tuple[float, float, float]]] = {}
    for row in rows:
        tokens, right = _figures(row, "prompt tokens")[0], _figures(row, "right")[0]
        low, high = _figures(row, "95%")
        lines.setdefault(_line_of(row[0]), []).append((tokens, right))
        upright.setdefault(_line_of(row[0]), []).append((tokens, low, high))
    panel = Panel("", "prompt tokens, mean", "right, %, with the 95% interval", lines, log_x=True, continuous_x=True,
                  upright=upright)  # fmt: skip
    return Picture(_takeaway(rows), [panel])


def _figures(row: Sequence[str], column: str) -> list[float]:
    return [float(figure) for figure in re.findall(r"[0-9.]+", row[HEAD.index(column)].replace(",", ""))]


def _line_of(arm: str) -> str:
    """The selector of an arm that has a size."""
    selector, _, size = arm.rpartition(" ")
    is_sized = re.fullmatch(r"[0-9.]+", size) and selector != "keep"
    return (selector or PITH) if is_sized else arm


def _takeaway(rows: Sequence[Sequence[str]]) -> str:
    """The whole beside the best of what is made smaller."""
    whole, *others = sorted(rows, key=lambda row: row[0] != WHOLE.name)
    smaller = [row for row in others if row[0] not in ("gold", "nothing")]
    best = max(smaller or others or rows, key=lambda row: _figures(row, "right"))
    name = f"pith at {best[0]}" if _line_of(best[0]) == PITH else best[0]
    return f"Right with the whole context of {_told(whole)}; with {name}, {_told(best)}"


def _told(row: Sequence[str]) -> str:
    return f"{row[HEAD.index('prompt tokens')]} tokens: {row[HEAD.index('right')]}"


def from_page(page: Path) -> Picture:
    [(_, rows)] = tables(page, *HEAD)
    return picture(rows)


def report_of(found: Answers, arms: Sequence[str], facts: Mapping[str, str]) -> Report:
    """Raises `ValueError` where no case was asked in every arm."""
    own = complete(found, arms)
    if not own:
        raise ValueError("no case was asked in every arm")
    by_suite = {
        suite: [each for each in own if each.suite == suite] for suite in {each.suite: 0 for each in own}
    }
    lines = suites_table({"all": own, **by_suite}, arms)
    for suite, some in {"all": own, **by_suite}.items():
        timed = sum(answer.is_alone for answer in some if answer.arm == WHOLE.name)
        cases = len(rights(some, WHOLE.name))
        lines += ["", f"## {suite}: {cases} cases, times of {timed}", "", *arms_table(some, arms)]
    body = {"answers": [asdict(each) for each in own]}
    pictures = {"answers": picture([cells(own, arm) for arm in arms])}
    return Report("answers", "Answers under compression", facts, lines, body, pictures)
