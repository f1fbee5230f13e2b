"""The page that says how well the calibrations hold on what they were not fitted on, and the figures of its diagram."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.training.calibration.measures import Kept, Line, lines, promised
from compression.calibration.boosting import sigmoid
from compression.calibration.fitting import Floats, calibration_error
from compression.tuning.artefact import Fitted

PAGE, FIGURES, KEEP, BINS = "calibration.md", "reliability.json", 0.95, 10
_HEAD = """# How well the calibrations hold

`evidence_kept_probability`, the flag `evidence_at_risk` and `compression.keep` rest on a calibration, one for each kind
of model (see [compression.md](compression.md#how-probable-it-is-that-the-evidence-was-kept)). This page is written by

    {command}
    python -m benchmarks.quality.calibration_picture

Each question is compressed at 14 ratios from 0.02 to 0.9; the scorers were trained on none of them. Each is judged by a
calibration that saw other questions of its suite (five folds); *left out*: by one that saw no suite of its family. Kept
means: an answer (nq, xquad, papers, tickets, chats), all needed sentences, answers or turns (hotpot, wiki2, musique,
dialogues), all values (tau, agents, coding), all that was asked for (the kinds of input of
[compression-quality.md](compression-quality.md)), a line of each kind (logs), the pair (kv), half of the evidence's
tokens (qmsum); of a tool's result in JSON (`lexical results`) all values that a later call repeats and that nothing
else of the conversation has (tau; made: generated records), or an answer (asked: searches, look-ups).
Warnings are counted at ratios from 0.05 to 0.5, everything else at all ratios. Each kind of source (code, JSON, tables,
logs, turns, documents, …) with 40 questions has its own thresholds: the odds that warn are those with which the shares
of its suites come nearest to 70% of losses and 15% of the rest, and a promise waits until 95% of its questions, and all
but one standard error of that of each suite with 20, kept their evidence.

![Reliability](calibration.png)
"""


def publish(found: Mapping[str, Fitted], folder: Path, figures: Path, command: str) -> None:
    """Writes the page into `folder`, and what its diagram shows into the folder `figures`."""
    parts = [_HEAD.format(command=command)]
    for kind, fitted in found.items():
        parts += [
            f"## `{kind}`\n",
            flags_table(fitted),
            f"\nCalibration error with all suites weighted alike: {overall_error(fitted):.3f}.\n",
        ]
        parts += [f"`keep: {KEEP:g}` on questions that were not fitted on:\n", promise_table(fitted), ""]
        parts += ["Predicted and observed, all suites weighted alike:\n", reliability_table(fitted), ""]
    (folder / PAGE).write_text("\n".join(parts), encoding="utf-8")
    figures.mkdir(parents=True, exist_ok=True)
    (figures / FIGURES).write_text(json.dumps(diagram(found)), encoding="utf-8")


def flags_table(fitted: Fitted) -> str:
    """Losses that warn and kept outputs that warn, in percent, and the calibration's error."""
    rows = ["| suite | outputs | lost | losses / kept that warn | error | left out: losses / kept | error |",
            "|---|---|---|---|---|---|---|"]  # fmt: skip
    apart = lines(fitted, fitted.apart)
    other = lines(fitted, fitted.other) if fitted.other else [None] * len(apart)
    for one, two in zip(apart, other, strict=True):
        last = f"{_warned(two)} | {two.error:.3f}" if two else "| "
        rows.append(
            f"| {one.suite} | {one.outputs} | {100 * one.lost:.0f}% | {_warned(one)} | {one.error:.3f} | {last} |"
        )
    return "\n".join(rows)


def promise_table(fitted: Fitted) -> str:
    """What the promise came to, in percent, and the mean ratio."""
    rows = [
        "| suite | questions | covered | mean ratio | left out: covered | mean ratio |",
        "|---|---|---|---|---|---|",
    ]
    apart = promised(fitted, fitted.apart[0], KEEP)
    other: list[Kept] | list[None] = (
        promised(fitted, fitted.other[0], KEEP) if fitted.other else [None] * len(apart)
    )
    for one, two in zip(apart, other, strict=True):
        last = f"{100 * two.covered:.1f} | {two.ratio:.2f}" if two else "| "
        rows.append(f"| {one.suite} | {one.questions} | {100 * one.covered:.1f} | {one.ratio:.2f} | {last} |")
    return "\n".join(rows)


def reliability(logits: Floats, fitted: Fitted) -> list[tuple[float, float, float]]:
    """For each bin of predicted probability that has outputs: its weight, the mean prediction, and the share kept."""
    chances, kept, weights = sigmoid(logits), fitted.rows.kept, fitted.rows.weights
    which = np.minimum((chances * BINS).astype(int), BINS - 1)
    found = []
    for at in range(BINS):
        own, weight = which == at, float(weights[which == at].sum())
        if weight:
            found.append((weight / float(weights.sum()), float((weights * chances)[own].sum() / weight),
                          float((weights * kept)[own].sum() / weight)))  # fmt: skip
    return found


def reliability_table(fitted: Fitted) -> str:
    rows = ["| of outputs | predicted | kept |", "|---|---|---|"]
    rows += [
        f"| {100 * weight:.1f}% | {100 * told:.1f}% | {100 * kept:.1f}% |"
        for weight, told, kept in reliability(fitted.apart[0], fitted)
    ]
    return "\n".join(rows)


def diagram(found: Mapping[str, Fitted]) -> dict[str, Any]:
    """For each kind its calibration error, its points and the share of outputs behind each, by either way of leaving
    out."""
    ways = {"other questions seen": "apart", "no suite of the family seen": "other"}
    lines = {
        kind: {
            name: [(told, kept) for _, told, kept in reliability(logits[0], fitted)]
            for name, way in ways.items()
            if (logits := getattr(fitted, way)) is not None
        }
        for kind, fitted in found.items()
    }
    shares = {
        kind: {
            name: [weight for weight, *_ in reliability(getattr(fitted, ways[name])[0], fitted)]
            for name in names
        }
        for (kind, fitted), names in zip(found.items(), lines.values(), strict=True)
    }
    return {
        "lines": lines,
        "shares": shares,
        "errors": {kind: overall_error(fitted) for kind, fitted in found.items()},
    }


def overall_error(fitted: Fitted) -> float:
    """The calibration error with all suites weighted alike."""
    return float(calibration_error(sigmoid(fitted.apart[0]), fitted.rows.kept, fitted.rows.weights))


def _warned(line: Line) -> str:
    return f"{100 * line.lost_warned:.0f} / {100 * line.kept_warned:.0f}"
