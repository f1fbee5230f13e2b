"""The prices in force, and the JSON of what a request was charged at them.

Money becomes a float here, and only here."""

import asyncio
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from billing.caller import PriceTerms
from billing.errors import PricesUnavailable
from billing.ledger.ledger import Ledger
from billing.ledger.price_list import PriceList
from billing.price import WHOLE_PPM, ModelPrice, usd
from billing.usage import MeteringStatus
from serve.money.held_request import Promise, Receipt


class PriceBook:
    """Reads the ledger's list with the prices `of` this server; None: the last one. Until a read succeeds each call
    tries again."""

    def __init__(self, ledger: Ledger, of: Sequence[ModelPrice] | None = None) -> None:
        self._ledger = ledger
        self._of = of
        self._prices: PriceList | None = None
        self._reading = asyncio.Lock()
        self._reduced: dict[PriceTerms, PriceList] = {}

    async def current(self) -> PriceList:
        """Raises `billing.errors.PricesUnavailable`."""
        if self._prices is None:
            async with self._reading:
                if self._prices is None:
                    self._prices = await self._ledger.current_prices(self._of)
        return self._prices

    async def of(self, terms: PriceTerms | None) -> PriceList:
        """The prices that a caller with these terms pays. Raises `PricesUnavailable`."""
        if terms is None:
            return await self.current()
        if terms not in self._reduced:
            version = terms.version
            listed = await (self.current() if version is None else self._ledger.prices_of_version(version))
            self._reduced[terms] = listed.reduced(terms.ppm)
        return self._reduced[terms]


def price_of(prices: PriceList, model_id: str) -> ModelPrice:
    """Raises `PricesUnavailable` for a model that this list does not price."""
    price = prices.of(model_id)
    if price is None:
        raise PricesUnavailable(f"price list {prices.version} has no price for model {model_id!r}")
    return price


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
            "metering": metering_fields(receipt.settlement.status, receipt.promise),
        },
    }


def metering_fields(status: MeteringStatus, promise: Promise | None) -> dict[str, Any]:
    """The contract's `metering`, with the promise where there is one."""
    return {"persisted": status == "persisted", "status": status, **proof_fields(promise)}


def proof_fields(promise: Promise | None) -> dict[str, Any]:
    return {} if promise is None else {"proof": {"record": promise.record, "note": promise.note}}


def promised_service(status: MeteringStatus, promise: Promise | None) -> dict[str, Any]:
    """The `service` of a reply that has it for a promise alone."""
    return {} if promise is None else {"service": {"metering": metering_fields(status, promise)}}


def document_cached_price(schema: dict[str, Any]) -> None:
    """Add to a shape's JSON schema the price that it has only where it is set."""
    schema["properties"][CACHED_INPUT] = {
        "type": "number",
        "description": "USD per million input tokens that the engine's prefix cache had. Only of a model for which "
        "they have a price of their own; else they cost what input costs.",
    }


def input_price_fields(price: ModelPrice) -> dict[str, float]:
    """The price of a model that generates nothing."""
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


def document_proof(schema: dict[str, Any]) -> None:
    """Add to a shape's JSON schema the promise that it has only in projects with `proof`."""
    schema["properties"]["proof"] = proof_schema("this usage")


def proof_schema(of: str) -> dict[str, Any]:
    return {
        "type": "object",
        "description": f"The promise that {of} will be in the transparency log. Absent unless the project has `proof`.",
        "properties": {
            "record": {"type": "string", "description": "What the leaf commits to, as it is hashed: JSON."},
            "note": {"type": "string", "description": "The hash of it as a signed note."},
        },
        "required": ["record", "note"],
    }


class Metering(BaseModel):
    """The record of the usage."""

    model_config = ConfigDict(json_schema_extra=document_proof)

    persisted: bool = Field(description="True once it is committed in the ledger.")
    status: MeteringStatus = Field(
        description="`persisted`: in the ledger. `degraded`: kept on disk and brought to it later, exactly "
        "once. `not_applicable`: this project is not metered."
    )


class Billing(BaseModel):
    """The cost of a request and its reasons."""

    model_config = ConfigDict(json_schema_extra=document_cached_price)

    input_price_per_mtok: float = Field(description="USD per million input tokens of the selected model.")
    output_price_per_mtok: float = Field(description="USD per million output tokens of the selected model.")
    minimum_request_charge_usd: float = Field(description="The selected model's minimum per request, in USD.")
    minimum_applied: bool = Field(description="True when the minimum determined the cost.")
    request_cost_usd: float = Field(description="The greater of the tokens' price and the minimum, in USD.")
