"""What to build a compression model from: plain values, so that they cross a process and need no torch to read."""

from dataclasses import dataclass, field
from typing import Literal

from compression.pipeline.settings import CompressionSettings
from compression.scorers.kinds import KINDS, Blend, Kind

Steering = Literal["lexical", "bm25"]
Fidelity = Literal["default", "llmlingua2"]
Dtype = Literal["float32", "bfloat16", "float16"]


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One compression model.

    `checkpoint`: a folder or hub name; None for `lexical`. `revision` and `tokenizer_revision`: commits on the hub.
    `tokenizer`: a `tokenizer.json`, its folder, or a hub name;
    receipts count by it and call it `tokenizer_name`. `batch_tokens`, `window`, `overlap`: tokens of the checkpoint's
    own tokenizer; a window of None is the checkpoint's. `max_waiting`: requests that may wait or run, above that they
    are refused; `max_waiting_tokens` likewise for what waits for the network. `steered_by`: whose unit scores share
    the budget before a token classifier chooses words. `calibration`: a file that `pith tune` wrote; None is what pith
    has for the kind.
    """

    id: str
    kind: Kind
    tokenizer: str
    tokenizer_name: str
    checkpoint: str | None = None
    revision: str | None = None
    tokenizer_revision: str | None = None
    device: str = "cpu"
    # Part of a GPU's memory that each of its processes may take.
    memory_share: float = 1.0
    dtype: Dtype = "float32"
    threads: int | None = None
    batch_tokens: int = 4096
    window: int | None = None
    overlap: int = 0
    max_waiting: int = 256
    max_waiting_tokens: int = 1_000_000
    settings: CompressionSettings = field(default_factory=CompressionSettings)
    blend: Blend | None = None
    steered_by: Steering = "lexical"
    fidelity: Fidelity = "default"
    calibration: str | None = None

    def __post_init__(self) -> None:
        kind = KINDS[self.kind]
        if kind.has_network == (self.checkpoint is None):
            need = "must be set" if kind.has_network else "must not be set"
            why = "" if kind.has_network else ": its weights ship with pith"
            raise ValueError(f"{self.id}: checkpoint: {need} for kind {self.kind}{why}")
        if self.fidelity != "default" and not kind.chooses_words:
            raise ValueError(f"{self.id}: fidelity: {self.fidelity} is for token classifiers only")
        if self.calibration is not None and kind.chooses_words:
            raise ValueError(
                f"{self.id}: calibration: a token classifier selects words, so it cannot be calibrated"
            )
        if self.blend is not None and kind.blend is None:
            raise ValueError(f"{self.id}: blend: a model of kind {self.kind} does not use blend")

    @property
    def blend_used(self) -> Blend | None:
        """The blend given, or the kind's own; None where nothing is blended."""
        return self.blend or KINDS[self.kind].blend
