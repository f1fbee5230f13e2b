"""The parts of a reply's JSON that tell of money: `usage`, `service` and the fields of a price.

Money becomes a float here, and only here.
"""

from typing import Any

from billing.price import ModelPrice, usd
from serve.money.held_request import Receipt

MICRO = 10**6


def charged_fields(receipt: Receipt) -> dict[str, Any]:
    """The contract's `usage` and `service` of a request that was settled."""
    usage = receipt.usage
    return {
        "usage": {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "total_tokens": usage.total_tokens,
        },
        "service": {
            "billing": {
                **price_fields(receipt.price),
                "minimum_applied": receipt.cost.minimum_applied,
                "request_cost_usd": usd(receipt.cost.nano_usd),
            },
            "metering": {"persisted": receipt.settlement.persisted, "status": receipt.settlement.status},
        },
    }


def price_fields(price: ModelPrice) -> dict[str, float]:
    """In USD."""
    return {
        "input_price_per_mtok": price.input_micro_usd_per_mtok / MICRO,
        "output_price_per_mtok": price.output_micro_usd_per_mtok / MICRO,
        "minimum_request_charge_usd": usd(price.minimum_nano_usd),
    }
