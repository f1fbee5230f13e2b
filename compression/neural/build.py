"""Builds the compression models that need torch: from the spec to a network and what it runs in."""

from collections.abc import Callable
from dataclasses import replace

from compression.neural.batching import (
    CheckpointRefused,
    LLMLinguaUnavailable,
    Network,
    NeuralService,
    Windows,
)
from compression.neural.checkpoints import find_checkpoint
from compression.neural.llmlingua import LLMLingua2, LLMLinguaCompressor
from compression.neural.models import (
    NetworkScorer,
    Running,
    ScoredModel,
    WordModel,
    blended,
)
from compression.neural.networks import Placement
from compression.neural.token_classifier import TokenClassifier
from compression.pipeline.compression_model import BuiltModel, LocalModel
from compression.pipeline.pipeline import pipeline_of
from compression.pipeline.spec import ModelSpec
from compression.scorers.kinds import KINDS, Blend
from compression.scorers.lexical import BM25Scorer, LexicalScorer, Scorer
from compression.source.token_counter import TokenCounter
from compression.source.units import Segmentation


def build_neural_model(spec: ModelSpec, counter: TokenCounter) -> BuiltModel:
    """Loads the checkpoint. Raises `CheckpointRefused`, `LLMLinguaUnavailable`, and what lexical weights raise."""
    spec = _located(spec)
    try:
        return (_word_model if KINDS[spec.kind].chooses_words else _scored_model)(spec, counter)
    except (CheckpointRefused, LLMLinguaUnavailable):
        raise
    except (RuntimeError, AssertionError) as error:
        # What torch raises where a device is missing or full, or weights have other shapes than the config.
        raise CheckpointRefused(spec.checkpoint or "", f"does not load on {spec.device}: {error}") from error


def _located(spec: ModelSpec) -> ModelSpec:
    """The spec, with the folder of the revision that was asked for as its checkpoint."""
    if spec.revision is None:
        return spec
    return replace(spec, checkpoint=str(find_checkpoint(spec.checkpoint or "", spec.revision)))


def _running(spec: ModelSpec, counter: TokenCounter, network: Network) -> Running:
    service = NeuralService(
        network, token_budget=spec.batch_tokens, max_waiting_tokens=spec.max_waiting_tokens
    )
    return Running(pipeline_of(spec, counter), service, spec.max_waiting)


def build_neural_scoring(spec: ModelSpec) -> Callable[[str, Segmentation], list[float]]:
    """The blended scores that a `ScoredModel` of the spec keeps units by, without its queue.

    Raises what `build_neural_model` does.
    """
    scorer, lexical, blend = _scorer(_located(spec)), LexicalScorer.load(), _blend(spec)

    def score(query: str, text: Segmentation) -> list[float]:
        if not query.strip():
            return [0.0] * len(text.units)
        return blended(scorer.score(query, text), lexical, blend, query, text)

    return score


def _scored_model(spec: ModelSpec, counter: TokenCounter) -> BuiltModel:
    scorer = _scorer(spec)
    return ScoredModel(_running(spec, counter, scorer.network), scorer, LexicalScorer.load(), _blend(spec))


def _scorer(spec: ModelSpec) -> NetworkScorer:
    scorer: NetworkScorer = KINDS[spec.kind].maker()(spec)
    return scorer


def _blend(spec: ModelSpec) -> Blend:
    if spec.blend_used is None:
        raise ValueError(f"{spec.id}: kind {spec.kind} has no blend")
    return spec.blend_used


def _word_model(spec: ModelSpec, counter: TokenCounter) -> BuiltModel:
    unit_scorer: Scorer = BM25Scorer() if spec.steered_by == "bm25" else LexicalScorer.load()
    if spec.fidelity == "llmlingua2":
        original = LLMLingua2.load(spec.checkpoint or "", Placement.of(spec))
        # It keeps words of the very input, JSON or not: no view of a conversation comes between.
        plain = replace(spec.settings.segmentation, conversations=False)
        spec = replace(spec, settings=replace(spec.settings, segmentation=plain))
        compressor = LLMLinguaCompressor(pipeline_of(spec, counter), unit_scorer, original)
        return LocalModel(compressor, max_waiting=spec.max_waiting)
    classifier = TokenClassifier.load(
        spec.checkpoint or "", Placement.of(spec), windows=Windows.of(spec), count=counter.count_many
    )
    return WordModel(_running(spec, counter, classifier.network), unit_scorer, classifier)
