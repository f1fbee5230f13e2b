"""What to build a compression model from: plain values, so that they cross a process and need no torch to read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from compression.pipeline.settings import CompressionSettings

Kind = Literal["lexical", "encoder", "token_classifier", "query_classifier"]
Steering = Literal["lexical", "bm25"]
Fidelity = Literal["default", "llmlingua2"]
Dtype = Literal["float32", "bfloat16", "float16"]


@dataclass(frozen=True, slots=True)
class Blend:
    """How a neural score s in [0, 1] joins the lexical scorer's logit l.

    The blended score is sigmoid(lexical * l + neural * (s - midpoint)); weights are not negative.
    """

    lexical: float
    neural: float
    midpoint: float = 0.5

    def __post_init__(self) -> None:
        if self.lexical < 0 or self.neural < 0:
            raise ValueError(f"blend: weights must not be negative, not {self.lexical:g} and {self.neural:g}")
        if not self.lexical and not self.neural:
            raise ValueError("blend: lexical and neural must not both be 0")


BLENDS: dict[Kind, Blend] = {
    # Measured with MiniLM on questions to twenty hard passages; a cosine c is the score (1 + c) / 2.
    "encoder": Blend(lexical=0.5, neural=32.0, midpoint=0.72),
    "query_classifier": Blend(lexical=0.5, neural=8.0, midpoint=0.5),
}
"""What each kind blends by unless its spec says otherwise."""


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
        if (self.kind == "lexical") != (self.checkpoint is None):
            need = "takes none, its weights come with pith" if self.kind == "lexical" else "needs one"
            raise ValueError(f"{self.id}: checkpoint: a model of kind {self.kind} {need}")
        if self.fidelity != "default" and self.kind != "token_classifier":
            raise ValueError(f"{self.id}: fidelity: {self.fidelity} is for token classifiers only")
        if self.calibration is not None and self.kind == "token_classifier":
            raise ValueError(
                f"{self.id}: calibration: a token classifier chooses words, and none can be fitted to it"
            )
        if self.blend is not None and self.kind not in BLENDS:
            raise ValueError(f"{self.id}: blend: a model of kind {self.kind} blends nothing")

    @property
    def blend_used(self) -> Blend | None:
        """The blend given, or the kind's own; None where nothing is blended."""
        return self.blend or BLENDS.get(self.kind)
