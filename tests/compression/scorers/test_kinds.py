"""A scorer is added by a row in the table of kinds: what else there is takes it from there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

import pytest

from compression.build import build_model, build_scoring
from compression.pipeline.compression_model import CompressionRequest
from compression.pipeline.spec import ModelSpec
from compression.scorers.kinds import KINDS, Kind, ScorerKind
from compression.segmentation import segment
from compression.source.units import Segmentation
from compression.workers.lanes import plan_of
from tests.compression.conftest import TOKENIZER

SOURCE = "The committee met for a whole day in Geneva. It rained. Nobody who was there remembers why they had come."


class ShortestFirst:
    """A made-up scorer: the fewer characters a unit has, the better."""

    def score(self, query: str, text: Segmentation) -> Sequence[float]:
        return [1.0 / len(unit) for unit in text.texts()]


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> ModelSpec:
    monkeypatch.setitem(KINDS, "shortest", ScorerKind(f"{__name__}:ShortestFirst"))
    kind: Any = "shortest"
    return ModelSpec("shortest", kind, str(TOKENIZER), "pith-mini")


async def test_a_kind_with_a_row_in_the_table_is_built_and_compresses(made_up: ModelSpec) -> None:
    model = build_model(made_up)
    result = await model.compress(CompressionRequest("Who came?", SOURCE, 0.2))
    await model.close()
    assert result.output == "It rained."
    assert result.receipt.evidence_kept_probability is None


def test_a_calibration_is_fitted_to_the_scores_of_any_kind(made_up: ModelSpec) -> None:
    scores = build_scoring(made_up)("Who came?", segment(SOURCE))
    assert scores.index(max(scores)) == 1


def test_a_kind_without_a_network_is_planned_as_the_lexical_one_and_takes_no_checkpoint(
    made_up: ModelSpec,
) -> None:
    limits: dict[str, Any] = {"workers": 2, "large_bytes": 1, "max_waiting": 1, "deadline_s": 1}
    assert plan_of(made_up.kind, **limits) == plan_of("lexical", **limits)
    with pytest.raises(ValueError, match="must not be set"):
        replace(made_up, checkpoint="some/model")


def test_every_name_of_a_kind_has_its_row_and_every_row_names_what_there_is() -> None:
    assert set(get_args(Kind)) == set(KINDS)
    assert all(kind.chooses_words or callable(kind.maker()) for kind in KINDS.values())


def test_a_kind_that_chooses_words_scores_no_units() -> None:
    with pytest.raises(ValueError, match="selects words"):
        KINDS["token_classifier"].maker()
