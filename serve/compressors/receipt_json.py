"""The JSON of a receipt: what callers get is what the project's usage log keeps."""

from dataclasses import asdict
from typing import Any

from compression.flags import Flag
from compression.pipeline.request import Receipt


def receipt_fields(receipt: Receipt) -> dict[str, Any]:
    """The contract's receipt. What does not apply to it is null, so that every receipt has the same fields."""
    return {
        "original_tokens": receipt.original_tokens,
        "output_tokens": receipt.output_tokens,
        "tokens_saved": receipt.tokens_saved,
        "compression_ratio": receipt.compression_ratio,
        "target_ratio": receipt.target_ratio,
        "latency_ms": round(receipt.latency_ms, 3),
        "tokenizer": receipt.tokenizer,
        "keep": receipt.keep,
        "estimated_ratio": receipt.estimated_ratio,
        "evidence_kept_probability": receipt.evidence_kept_probability,
        "calibration": receipt.calibration and asdict(receipt.calibration),
        "risk_flags": [_flag_fields(flag) for flag in receipt.risk_flags],
    }


def _flag_fields(flag: Flag) -> dict[str, Any]:
    return {
        "code": flag.code,
        "severity": flag.severity,
        "count": flag.count,
        "examples": [
            {"start": example.start, "end": example.end, "text": example.text} for example in flag.examples
        ],
    }
