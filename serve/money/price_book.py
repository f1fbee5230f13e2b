"""The price list that this server published, read from the ledger once it is there and then kept: a running server
never reprices, and another deployment on the same ledger has prices of its own."""

import asyncio
from collections.abc import Sequence

from billing.errors import PricesUnavailable
from billing.ledger.ledger import Ledger
from billing.ledger.price_list import PriceList
from billing.price import ModelPrice


class PriceBook:
    """Reads the ledger's list with the prices `of` this server; None: the last one. Until a read succeeds each call
    tries again."""

    def __init__(self, ledger: Ledger, of: Sequence[ModelPrice] | None = None) -> None:
        self._ledger = ledger
        self._of = of
        self._prices: PriceList | None = None
        self._reading = asyncio.Lock()

    async def current(self) -> PriceList:
        """Raises `billing.errors.PricesUnavailable`."""
        if self._prices is None:
            async with self._reading:
                if self._prices is None:
                    self._prices = await self._ledger.current_prices(self._of)
        return self._prices


def price_of(prices: PriceList, model_id: str) -> ModelPrice:
    """Raises `PricesUnavailable` for a model that this list does not price."""
    price = prices.of(model_id)
    if price is None:
        raise PricesUnavailable(f"price list {prices.version} has no price for model {model_id!r}")
    return price
