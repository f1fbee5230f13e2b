"""A calibration as it is used: from a scored text and what was kept of it to the probability that the evidence was."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from compression.calibration.boosting import Trees
from compression.calibration.context import Context, Floats, Ranges, kind_of, read
from compression.calibration.estimate import Calibration, Estimate, ScoredText, Slices
from compression.calibration.signals import NAMES, OF_TEXT, of_choice, of_text
from compression.choosing.budget import choose
from compression.choosing.selection import Selection, SelectionSettings
from compression.source.units import Segmentation

WEIGHTS = Path(__file__).parents[1] / "weights" / "calibration.json"
FORMAT = 1
# Higher estimates are not any more certain in practice.
_SUREST = 0.999
# Each step to a promise allows a seventh more tokens than the one before it.
_STEPS = tuple(float(ratio) for ratio in np.geomspace(0.02, 0.98, 31))
# What is chosen anew is not always better than for the step before. So these are the ratios that it was fitted at: with
# more of them, more would pass by luck.
_STEPS_ANEW = (0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.75, 0.9)


class BadCalibration(ValueError):
    """A file of calibrations that this version cannot read, or that has none for a kind."""


@dataclass(frozen=True, slots=True)
class Standards:
    """`at_odds`: where the odds of an output's chance to what is usual are below the first, second or third of these,
    the flag is critical, a warning, or for information. `promises` are pairs of a probability that may be asked for and
    the logit that keeps it, both rising.
    """

    at_odds: tuple[float, float, float]
    promises: tuple[tuple[float, float], ...]

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Standards:
        """Raises `KeyError`, `TypeError` or `ValueError` where `data` is malformed."""
        critical, warning, info = (float(odds) for odds in data["at_odds"])
        return cls((critical, warning, info), _rising(data["promises"]))

    @classmethod
    def all_of(cls, entry: Mapping[str, Any]) -> tuple[Standards, dict[str, Standards]]:
        """Those for any source, and those for kinds of source that have their own. Raises likewise."""
        own = {str(kind): cls.of(data) for kind, data in entry.get("by_kind", {}).items()}
        return cls.of(entry), own

    def wanted(self, keep: float) -> float:
        """The logit that an output must have to keep the evidence with that probability."""
        keeps, logits = zip(*self.promises, strict=True)
        return float(np.interp(keep, keeps, logits))


@dataclass(frozen=True)
class Calibrated:
    """The calibration of one kind of scorer.

    `chance` reads all signals; `usual` those of the text alone, and says what is usual over all ratios. `by_kind` has
    the standards of kinds of source, as `kind_of` names them; `standards` are for all others.
    """

    about: Calibration
    chance: Trees
    usual: Trees
    standards: Standards
    by_kind: Mapping[str, Standards]
    ranges: Ranges
    suites: tuple[str, ...]

    @classmethod
    def load(cls, kind: str, path: Path | None = None) -> Calibrated | None:
        """For scorers of a kind, from the file that comes with pith (None where that has none), or from another.

        Raises `BadCalibration` and `FileNotFoundError`.
        """
        data = (path or WEIGHTS).read_bytes()
        try:
            found = json.loads(data)
            entry = found["kinds"].get(kind)
            if found["format"] != FORMAT:
                raise ValueError(f"format {found['format']}, where this version reads {FORMAT}")
            if entry is not None:
                return cls.of(entry, hashlib.sha256(data).hexdigest())
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadCalibration(f"{path or WEIGHTS}: {type(error).__name__}: {error}") from error
        if path is not None:
            raise BadCalibration(
                f"{path}: has no calibration for kind {kind}; it has {', '.join(found['kinds'])}"
            )
        return None

    @classmethod
    def of(cls, entry: Mapping[str, Any], sha256: str) -> Calibrated:
        """Raises `KeyError`, `TypeError` or `ValueError` for a malformed entry."""
        if tuple(entry["signals"]) != NAMES:
            raise ValueError("it was fitted on other signals; fit it again")
        standards, by_kind = Standards.all_of(entry)
        return cls(
            about=Calibration(str(entry["name"]), sha256),
            chance=Trees.of(entry["chance"], len(NAMES)),
            usual=Trees.of(entry["usual"], len(OF_TEXT)),
            standards=standards,
            by_kind=by_kind,
            ranges=Ranges.of(entry["ranges"]),
            suites=tuple(map(str, entry["suites"])),
        )

    def estimate(self, scored: ScoredText, slices: Slices, output_tokens: int) -> Estimate:
        """See `Estimator`. 1 where all was kept; None where nothing was scored, or the query has no word."""
        query, text, scores = scored.query, scored.text, scored.scores
        kept = kept_shares(text, slices)
        if scores is None or not text.units:
            return Estimate(1.0 if bool(np.all(kept >= 1.0)) else None)
        context = read(query, text, scores, scored.tokens)
        outside = self.ranges.missed(query, text, context)
        if "query" in outside:
            return Estimate(None, outside=outside)
        known = of_text(context)
        probability = min(_SUREST, _chance(self.logit(context, known, kept, output_tokens)))
        return Estimate(probability, self.at_risk(known, self.standards_of(text, context)), outside)

    def smallest_ratio(
        self, keep: float, scored: ScoredText, costs: Sequence[int], settings: SelectionSettings
    ) -> float:
        """See `Estimator`. The units are chosen best first under ever larger budgets, so what is chosen only grows.

        Where worths add up they are chosen anew for each: a small budget is filled with what is cheap.
        """
        text, scores, tokens = scored.text, scored.scores or (), scored.tokens
        context = read(scored.query, text, scores, tokens)
        if not context.query_terms:
            # Nothing says what the evidence is, so nothing may be dropped.
            return 1.0
        known, wanted = of_text(context), self.standards_of(text, context).wanted(keep)
        selection = Selection(text, scores, costs, settings)
        selection.keep_protected(tokens)
        kept = np.zeros(len(text.units))
        for ratio in _STEPS_ANEW if settings.adds_up else _STEPS:
            if settings.adds_up:
                selection = selection.fresh()
                choose(selection, int(ratio * tokens))
                kept = np.zeros(len(text.units))
            else:
                selection.fill(int(ratio * tokens))
            kept[selection.kept()] = 1.0
            if self.logit(context, known, kept, min(selection.cost, tokens)) >= wanted:
                return ratio
        return 1.0

    def logit(self, context: Context, known: Floats, kept: Floats, output_tokens: int) -> float:
        """`known` is `of_text` of the context. Never less where more of the same text is kept."""
        ratio = output_tokens / max(1, context.tokens)
        return self.chance.logit(np.concatenate([known, of_choice(context, kept, ratio)]))

    def standards_of(self, text: Segmentation, context: Context) -> Standards:
        return self.by_kind.get(kind_of(text, context), self.standards)

    def at_risk(self, known: Floats, standards: Standards) -> tuple[float, float, float]:
        """Probabilities below which the flag is critical, a warning, for information."""
        usual = self.usual.logit(known)
        critical, warning, info = (_chance(usual + float(np.log(odds))) for odds in standards.at_odds)
        return critical, warning, info


def kept_shares(text: Segmentation, slices: Slices) -> Floats:
    """The share of each unit that lies in `slices`, which may be in any order."""
    if not slices:
        return np.zeros(len(text.units))
    spans = np.array(sorted(slices), np.float64)
    # A separator may be in several places of the output.
    spans[1:, 0] = np.maximum(spans[1:, 0], np.maximum.accumulate(spans[:-1, 1]))
    spans[:, 1] = np.maximum(spans[:, 0], spans[:, 1])
    lengths = spans[:, 1] - spans[:, 0]
    edges = spans.ravel()
    passed = np.stack([np.cumsum(lengths) - lengths, np.cumsum(lengths)], axis=1).ravel()
    starts = np.array([unit.start for unit in text.units], np.float64)
    ends = np.array([unit.end for unit in text.units], np.float64)
    found = np.interp(ends, edges, passed) - np.interp(starts, edges, passed)
    shares: Floats = np.clip(found / np.maximum(1.0, ends - starts), 0.0, 1.0)
    return shares


def _rising(pairs: Sequence[Sequence[float]]) -> tuple[tuple[float, float], ...]:
    """Raises `ValueError` unless there are pairs, and they rise."""
    found = [(float(keep), float(logit)) for keep, logit in pairs]
    if (
        not found
        or found != sorted(found)
        or [logit for _, logit in found] != sorted(logit for _, logit in found)
    ):
        raise ValueError("promises must be pairs that rise")
    return tuple(found)


def _chance(logit: float) -> float:
    return float(1.0 / (1.0 + np.exp(-np.clip(logit, -40.0, 40.0))))
