"""The receipt that a caller stores beside its request: what went in, what came out, what that may have cost."""

from __future__ import annotations

from dataclasses import dataclass

from compression.flags import Flag


@dataclass(frozen=True, slots=True)
class Receipt:
    """Tokens are counted with `tokenizer`; the ratio is output by original, 1 where the original has no tokens."""

    original_tokens: int
    output_tokens: int
    target_ratio: float
    latency_ms: float
    tokenizer: str
    risk_flags: tuple[Flag, ...]

    @property
    def tokens_saved(self) -> int:
        return self.original_tokens - self.output_tokens

    @property
    def compression_ratio(self) -> float:
        return self.output_tokens / self.original_tokens if self.original_tokens else 1.0
