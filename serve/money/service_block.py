"""The parts of a reply's JSON that tell of money: `usage`, `service` and the fields of a price.

Money becomes a float here, and only here.
"""

from typing import Any

from billing.price import WHOLE_PPM, ModelPrice, usd
from serve.money.held_request import Receipt

MICRO = 10**6
CACHED_INPUT = "cached_input_price_per_mtok"


def charged_fields(receipt: Receipt) -> dict[str, Any]:
    """The contract's `usage` and `service` of a request that was settled."""
    usage = receipt.usage
    # Of models that reason alone: what else is generated is the answer.
    reasoning = {"completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens}}
    return {
        "usage": {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "total_tokens": usage.total_tokens,
            "prompt_tokens_details": {"cached_tokens": min(usage.cached_tokens, usage.prompt_tokens)},
            **(reasoning if usage.reasoning_tokens else {}),
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


def document_cached_price(schema: dict[str, Any]) -> None:
    """Add to a shape's JSON schema the price that it has only where it is set."""
    schema["properties"][CACHED_INPUT] = {
        "type": "number",
        "description": "USD per million input tokens that the engine's prefix cache had. Only of a model for which "
        "they have a price of their own; else they cost what input costs.",
    }


def input_price_fields(price: ModelPrice) -> dict[str, float]:
    """Of a model that generates nothing."""
    fields = price_fields(price)
    return {name: fields[name] for name in ("input_price_per_mtok", "minimum_request_charge_usd")}


def price_fields(price: ModelPrice) -> dict[str, float]:
    """In USD, as they are charged. Cached input is named only where it has a price of its own."""
    cached, part = price.cached_input_micro_usd_per_mtok, price.ppm / WHOLE_PPM
    return {
        "input_price_per_mtok": price.input_micro_usd_per_mtok / MICRO * part,
        **({} if cached is None else {CACHED_INPUT: cached / MICRO * part}),
        "output_price_per_mtok": price.output_micro_usd_per_mtok / MICRO * part,
        "minimum_request_charge_usd": usd(price.minimum_nano_usd) * part,
    }
