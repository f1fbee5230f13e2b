"""A compression model to build: plain values, so that they cross a process and need no torch to read."""

from dataclasses import dataclass, field, replace
from typing import Literal

from compression.choosing.protection import Protection, check_protections
from compression.choosing.selection import SelectionSettings
from compression.flags import FlagSettings
from compression.scorers.kinds import KINDS, Blend, Kind
from compression.segmentation import SegmentationSettings


@dataclass(frozen=True, slots=True)
class CompressionSettings:
    """Input in bytes of UTF-8, query in characters. Ratios outside `[lowest_ratio, highest_ratio]` are refused;
    `lowest_ratio` 0 refuses 0 itself and nothing above it.
    """

    segmentation: SegmentationSettings = field(default_factory=SegmentationSettings)
    selection: SelectionSettings = field(default_factory=SelectionSettings)
    flags: FlagSettings = field(default_factory=FlagSettings)
    protections: frozenset[Protection] = frozenset()
    longest_input_bytes: int = 2 * 1024 * 1024
    longest_query_chars: int = 20_000
    lowest_ratio: float = 0.0
    highest_ratio: float = 1.0

    def __post_init__(self) -> None:
        check_protections(self.protections)
        if not 0 <= self.lowest_ratio < self.highest_ratio <= 1:
            raise ValueError(
                f"lowest_ratio and highest_ratio: must be 0 <= lowest < highest <= 1, "
                f"not {self.lowest_ratio} and {self.highest_ratio}"
            )
        for name in ("longest_input_bytes", "longest_query_chars"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: must be at least 1, not {getattr(self, name)}")

    @property
    def segmentation_of_records(self) -> SegmentationSettings:
        """Segmentation of a tool's result in JSON: each value may be needed alone."""
        return replace(self.segmentation, longest_record=40, fewest_members=1)


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
        if self.fidelity != "default" and self.dtype != "float32":
            raise ValueError(
                f"{self.id}: dtype: fidelity {self.fidelity} runs in float32, not in {self.dtype}"
            )
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
