"""A chat's reply on its compression: `service.compression`, and a header."""

from typing import Any

from billing.price import usd
from models.engine import TokenUsage
from serve.compressors.receipt_json import receipt_fields
from serve.money.held_request import Receipt
from serve.prompt_compression.compressed_chat import CompressedChat
from serve.prompt_compression.outcome import BlockOutcome

COMPRESSION_HEADER = "X-Service-Compression"


def compression_header(compressed: CompressedChat | None) -> dict[str, str]:
    """`off` where no compression was asked for."""
    return {COMPRESSION_HEADER: "off" if compressed is None else compressed.result.status}


def compression_fields(compressed: CompressedChat, receipt: Receipt) -> dict[str, Any]:
    """Tokens as the engine counts them, and dollars: the gross saving, the cost of compression, and the difference.
    Null means unknown."""
    usage: TokenUsage = receipt.usage
    original, saved = compressed.original_tokens, compressed.saved_nano_usd
    spent = compressed.cost_nano_usd
    return {
        "status": compressed.result.status,
        "holdout": compressed.result.holdout,
        "model": compressed.prompt.settings.model_id,
        "original_tokens": original,
        "sent_tokens": usage.prompt_tokens,
        "tokens_saved": None if original is None else original - usage.prompt_tokens,
        "saved_usd": usd(saved),
        "cost_usd": usd(spent),
        "net_usd": usd(saved - spent),
        "blocks": [
            {**block_fields(outcome), "retained_until": compressed.retained_until(outcome.id)}
            for outcome in compressed.result.outcomes
        ],
    }


def block_fields(outcome: BlockOutcome) -> dict[str, Any]:
    """One block. `reason` says why it was sent whole, and then it has no receipt."""
    parts = outcome.block.parts
    return {
        "message": outcome.block.message,
        "part": parts[0] if parts else None,
        "parts": list(parts) or None,
        "id": outcome.id if outcome.is_compressed else None,
        "compressed": outcome.is_compressed,
        "cached": outcome.is_cached,
        "reason": outcome.reason,
        "receipt": receipt_fields(outcome.compression.receipt)
        if outcome.compression and outcome.is_compressed
        else None,
    }


def document_compression(schema: dict[str, Any]) -> None:
    """Add `compression` to a reply's `service` if it was asked for."""
    schema["properties"]["compression"] = {
        "type": "object",
        "description": "What became of the prompt. Absent unless compression was asked for.",
        "properties": {name: dict(kind, description=text) for name, kind, text in _MEMBERS},
    }


def document_header() -> dict[str, Any]:
    """For the 200 response."""
    schema = {"type": "string", "enum": ["applied", "skipped", "off", "failed"]}
    words = "What became of the prompt's long parts; `off` where compression was not asked for."
    return {COMPRESSION_HEADER: {"description": words, "schema": schema}}


_STRING, _NUMBER, _BOOLEAN = {"type": "string"}, {"type": "number"}, {"type": "boolean"}
_COUNT, _MAYBE_COUNT = {"type": "integer"}, {"type": ["integer", "null"]}
_MEMBERS: list[tuple[str, dict[str, Any], str]] = [
    ("status", _STRING, "`applied`, `skipped` (nothing was compressed) or `failed` (a part could not be)."),
    ("holdout", _BOOLEAN, "True where all of it was sent whole, to measure savings against."),
    ("model", _STRING, "The compression model."),
    (
        "original_tokens",
        _MAYBE_COUNT,
        "Tokens of the uncompressed prompt; null if not counted.",
    ),
    ("sent_tokens", _COUNT, "The prompt's tokens as the model read them: `usage.prompt_tokens`."),
    ("tokens_saved", _MAYBE_COUNT, "Their difference."),
    ("saved_usd", _NUMBER, "What the prompt would have cost more, in USD."),
    ("cost_usd", _NUMBER, "What its compression costs, in USD: a charge of its own."),
    ("net_usd", _NUMBER, "`saved_usd` less `cost_usd`."),
    (
        "blocks",
        {"type": "array", "items": {"type": "object"}},
        "Each part that could be compressed: `message` and `part` (positions, from 0), all `parts` that were "
        "compressed together, `compressed`, `cached`, the "
        "`reason` it was sent whole, its `id`, and its `receipt` as `POST /v1/compress` has it; "
        "`retained_until`, as Unix time, where its original is kept.",
    ),
]
