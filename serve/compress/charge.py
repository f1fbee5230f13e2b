"""What a compression costs by its receipt, which must not be more than was held for it."""

from __future__ import annotations

import logging

from billing.price import Cost, ModelPrice, cost
from billing.usage import Hold
from compression.pipeline.errors import CompressorFailed
from compression.pipeline.request import CompressionResult
from serve.money.terms import MostTokens

logger = logging.getLogger("pith.compress")


def cost_of(result: CompressionResult, price: ModelPrice) -> Cost:
    """By the tokens of its receipt."""
    receipt = result.receipt
    return cost(
        price,
        prompt_tokens=receipt.original_tokens,
        completion_tokens=receipt.output_tokens,
        minimum=True,
    )


def check_paid_for(hold: Hold, most: MostTokens, price: ModelPrice, result: CompressionResult) -> None:
    """What was held is all that a request can be charged. Raises `CompressorFailed` for a receipt of more."""
    if hold.kind == "not_applicable":
        return
    is_longer = result.receipt.original_tokens > most.prompt
    if is_longer or cost_of(result, price).nano_usd > hold.amount_nano_usd:
        logger.critical("%s: the receipt %r is more than was held: %r", hold.model_id, result.receipt, most)
        raise CompressorFailed(f"{hold.model_id}: the compressor counted more tokens than it had said")
