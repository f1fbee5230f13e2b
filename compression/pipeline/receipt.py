"""The receipt that a caller stores with its request: what went in, what came out, and what may have been lost."""

from dataclasses import dataclass

from compression.calibration.estimate import Calibration
from compression.flags import Flag


@dataclass(frozen=True, slots=True)
class Receipt:
    """Tokens are counted with `tokenizer`; the ratio is output by original, 1 where the original has no tokens.

    Asked for were `target_ratio` or `keep`, and the other is None. `estimated_ratio` is what the calibration says that
    `keep` needs. `evidence_kept_probability`, from 0 to 1, and `calibration` are None where the model has none.
    """

    original_tokens: int
    output_tokens: int
    target_ratio: float | None
    latency_ms: float
    tokenizer: str
    risk_flags: tuple[Flag, ...]
    keep: float | None = None
    estimated_ratio: float | None = None
    evidence_kept_probability: float | None = None
    calibration: Calibration | None = None

    @property
    def tokens_saved(self) -> int:
        return self.original_tokens - self.output_tokens

    @property
    def compression_ratio(self) -> float:
        return self.output_tokens / self.original_tokens if self.original_tokens else 1.0
