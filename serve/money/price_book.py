"""The price list that this server published, read from the ledger once it is there and then kept: a running server
never reprices, and another deployment on the same ledger has prices of its own."""

import asyncio
from collections.abc import Sequence

from billing.caller import PriceTerms
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
            listed = await self._ledger.prices_of_version(terms.version)
            self._reduced[terms] = listed.reduced(terms.ppm)
        return self._reduced[terms]


def price_of(prices: PriceList, model_id: str) -> ModelPrice:
    """Raises `PricesUnavailable` for a model that this list does not price."""
    price = prices.of(model_id)
    if price is None:
        raise PricesUnavailable(f"price list {prices.version} has no price for model {model_id!r}")
    return price
