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

import numpy as np

from compression.neural.batching import (
    Floats,
    Job,
    Network,
    QueryTooLong,
    Windows,
    cut,
    mean_of_tokens,
    run_job,
)
from compression.neural.checkpoints import TextTokenizer, find_checkpoint, read_json
from compression.neural.networks import Placement, QueryClassifierNetwork
from compression.pipeline.spec import ModelSpec
from compression.source.units import Segmentation

_OVERLAPPING = Windows(overlap=64)


class QueryClassifier:
    """The mean keep probability of each unit's tokens, given the query, averaged over the windows that hold them."""

    def __init__(self, network: Network, tokenizer: TextTokenizer, windows: Windows, *, window: int) -> None:
        self.network = network
        self.tokenizer = tokenizer
        self._windows = windows
        self._window = window

    @classmethod
    def load(
        cls,
        checkpoint: str,
        placement: Placement,
        *,
        windows: Windows = _OVERLAPPING,
        before_norm: bool | None = None,
    ) -> QueryClassifier:
        """A folder or a hub name. `before_norm`: which state the head reads (None: as it was for those who
        saved the checkpoint). Raises CheckpointRefused."""
        folder = find_checkpoint(checkpoint)
        tokenizer = TextTokenizer.load(folder)
        network = QueryClassifierNetwork.load(folder, placement, tokenizer.pad_id, before_norm=before_norm)
        said = read_json(folder / "config.json").get("max_length")
        window = network.window_of(checkpoint, windows.size, said)
        return cls(network, tokenizer, windows, window=window)

    @classmethod
    def of(cls, spec: ModelSpec) -> QueryClassifier:
        """As a server's model has it. Raises CheckpointRefused."""
        return cls.load(spec.checkpoint or "", Placement.of(spec), windows=Windows.of(spec))

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
        windows = tuple(self.tokenizer.pair_window(asked, ids[first:last]) for first, last in places)
        # The first number is the reranker's opinion of the whole window.
        start = 1 + len(self.tokenizer.pair.before) + len(asked) + len(self.tokenizer.pair.between)

        def finish(outputs: Sequence[Floats]) -> list[float]:
            kept = mean_of_tokens(places, outputs, len(ids), start)
            sums = np.concatenate([[0.0], np.cumsum(kept, dtype=np.float64)])
            means = (sums[bounds[1:]] - sums[bounds[:-1]]) / np.maximum(np.diff(bounds), 1)
            return [float(mean) for mean in np.clip(means, 0.0, 1.0)]

        return Job(windows, finish)

    def score(self, query: str, text: Segmentation) -> list[float]:
        return run_job(self.network, self.score_job(query, text), self._windows.token_budget)

    def _room(self, query: str) -> tuple[tuple[int, ...], int]:
        asked = self.tokenizer.tokens(query).ids
        limit = self._window // 2
        if len(asked) > limit:
            raise QueryTooLong(len(asked), limit)
        return asked, self._window - self.tokenizer.pair.length - len(asked)

    def _places(self, text: Segmentation, bounds: Sequence[int], room: int) -> list[tuple[int, int]]:
        """Windows over each document by itself, as the heads were trained; they end at units where they can."""
        overlap = min(self._windows.overlap, room // 2)
        documents = [document.units for document in text.documents] or [(0, len(text.units))]
        places: list[tuple[int, int]] = []
        for first_unit, last_unit in documents:
            start, end = bounds[first_unit], bounds[last_unit]
            ends = [bound - start for bound in bounds[first_unit + 1 : last_unit + 1]]
            places += [(start + first, start + last) for first, last in cut(end - start, room, overlap, ends)]
        return places
