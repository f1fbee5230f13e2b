"""Scores units by heads that see query and context together: OpenProvence, and Zilliz semantic-highlight.

The published format, as hotchpotch/open_provence reads it (`open_provence/modeling_open_provence_standalone.py`:
OpenProvenceConfig, OpenProvencePreTrainedModel, OpenProvenceHead), here loaded without running the code that it brings:

- `config.json`: `model_type: open_provence`; `base_model_config`, the reranker's own configuration with `model_type`
  (`modernbert`; `xlm-roberta` for bge-reranker-v2-m3, the base of zilliz/semantic-highlight-bilingual-v1);
  `num_labels` of the reranker, `max_length` of a window in tokens, `default_threadshold` (so spelt).
- weights: `ranking_model.*` (an AutoModelForSequenceClassification; older files leave the prefix out) and
  `pruning_head.classifier.{weight,bias}`, a `Linear(hidden, 2)`; softmax, label 1 is keep.
- the head reads `hidden_states[-1]`. For ModernBERT, transformers 4, with which these were trained, gave the state
  *before* `final_norm` under that name; transformers 5 gives the one after it. So the state is taken where it was.
- input: the pair (query, context) between the tokenizer's special tokens, `[CLS] query [SEP] context [SEP]` or
  `<s> query </s></s> context </s>`; each sentence is tokenized by itself, with the white space that follows it.
- a sentence's score is the mean over its tokens; the original cuts long contexts into blocks that do not overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compression.neural.batching import Floats, Job, Network, QueryTooLong, cut, run_job
from compression.neural.checkpoints import TextTokenizer, find_checkpoint, read_json
from compression.neural.networks import Placement, QueryClassifierNetwork
from compression.pipeline.spec import ModelSpec
from compression.source.units import Segmentation


@dataclass(frozen=True, slots=True)
class QueryClassifierSettings:
    """Tokens of a window (None: the checkpoint's), tokens that neighbouring windows share, tokens of a batch.

    `before_norm` says which state the head reads (None: as transformers had it that saved the checkpoint).
    """

    window: int | None = None
    overlap: int = 64
    token_budget: int = 4096
    before_norm: bool | None = None


@dataclass(frozen=True, slots=True)
class _Place:
    """A window's context: tokens `first` to `last` of the whole source's."""

    first: int
    last: int


class QueryClassifier:
    """The mean keep probability of each unit's tokens, given the query, averaged over the windows that hold them."""

    def __init__(
        self, network: Network, tokenizer: TextTokenizer, settings: QueryClassifierSettings, *, window: int
    ) -> None:
        self.network = network
        self.tokenizer = tokenizer
        self.settings = settings
        self._window = window

    @classmethod
    def load(
        cls, checkpoint: str, placement: Placement, *, settings: QueryClassifierSettings | None = None
    ) -> QueryClassifier:
        """A folder or a hub name. Raises CheckpointRefused."""
        folder, settings = find_checkpoint(checkpoint), settings or QueryClassifierSettings()
        tokenizer = TextTokenizer.load(folder)
        network = QueryClassifierNetwork.load(
            folder, placement, tokenizer.pad_id, before_norm=settings.before_norm
        )
        said = read_json(folder / "config.json").get("max_length")
        window = network.window_of(checkpoint, settings.window, said)
        return cls(network, tokenizer, settings, window=window)

    @classmethod
    def of(cls, spec: ModelSpec) -> QueryClassifier:
        """As a server's model has it. Raises CheckpointRefused."""
        settings = QueryClassifierSettings(
            window=spec.window, overlap=spec.overlap, token_budget=spec.batch_tokens
        )
        return cls.load(spec.checkpoint or "", Placement.of(spec), settings=settings)

    def score_job(self, query: str, text: Segmentation) -> Job[list[float]]:
        """A score in [0, 1] for each unit. Raises QueryTooLong."""
        asked, room = self._room(query)
        ends = [unit.start for unit in text.units[1:]] + [len(text.source)]
        found = self.tokenizer.many_tokens(
            [text.source[unit.start : end] for unit, end in zip(text.units, ends, strict=True)]
        )
        ids = [token for tokens in found for token in tokens.ids]
        bounds = [0, *np.cumsum([len(tokens) for tokens in found]).tolist()]
        places = self._places(text, bounds, room)
        windows = tuple(self.tokenizer.pair_window(asked, ids[place.first : place.last]) for place in places)
        start = len(self.tokenizer.pair.before) + len(asked) + len(self.tokenizer.pair.between)

        def finish(outputs: Sequence[Floats]) -> list[float]:
            kept = self._average(places, outputs, len(ids), start)
            sums = np.concatenate([[0.0], np.cumsum(kept, dtype=np.float64)])
            means = (sums[bounds[1:]] - sums[bounds[:-1]]) / np.maximum(np.diff(bounds), 1)
            return [float(mean) for mean in np.clip(means, 0.0, 1.0)]

        return Job(windows, finish)

    def score(self, query: str, text: Segmentation) -> list[float]:
        return run_job(self.network, self.score_job(query, text), self.settings.token_budget)

    def _room(self, query: str) -> tuple[tuple[int, ...], int]:
        asked = self.tokenizer.tokens(query).ids
        limit = self._window // 2
        if len(asked) > limit:
            raise QueryTooLong(len(asked), limit)
        return asked, self._window - self.tokenizer.pair.length - len(asked)

    def _places(self, text: Segmentation, bounds: Sequence[int], room: int) -> list[_Place]:
        """Windows over each document by itself, as the heads were trained; they end at units where they can."""
        overlap = min(self.settings.overlap, room // 2)
        documents = [document.units for document in text.documents] or [(0, len(text.units))]
        places = []
        for first_unit, last_unit in documents:
            start, end = bounds[first_unit], bounds[last_unit]
            ends = [bound - start for bound in bounds[first_unit + 1 : last_unit + 1]]
            places += [
                _Place(start + first, start + last) for first, last in cut(end - start, room, overlap, ends)
            ]
        return places

    def _average(
        self, places: Sequence[_Place], outputs: Sequence[Floats], tokens: int, start: int
    ) -> Floats:
        total, seen = np.zeros(tokens, np.float32), np.zeros(tokens, np.float32)
        for place, output in zip(places, outputs, strict=True):
            # The first number is the reranker's opinion of the whole window.
            total[place.first : place.last] += output[1 + start : 1 + start + place.last - place.first]
            seen[place.first : place.last] += 1
        mean: Floats = total / np.maximum(seen, 1)
        return mean
