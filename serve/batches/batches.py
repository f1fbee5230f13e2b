"""Batches of projects: made, listed and cancelled."""

from dataclasses import dataclass

import orjson

from billing.batches.batch import Batch, NewBatch
from billing.batches.batch_store import BatchStore
from billing.batches.errors import UnknownBatch, UnknownFile
from billing.caller import Caller
from models.errors import InvalidField
from serve.batches.batch_request import BatchRequest
from serve.batches.endpoints import Endpoints, plain_path
from serve.batches.pages import is_id
from serve.http.request_id import fresh_id
from serve.money.price_book import PriceBook


@dataclass(frozen=True, slots=True)
class BatchTerms:
    """`price_ppm` is the part of a price, in millionths, that a line is charged."""

    price_ppm: int
    window_s: float
    most_unfinished: int


class Batches:
    """Every method raises `LedgerUnavailable`."""

    def __init__(self, store: BatchStore, prices: PriceBook, endpoints: Endpoints, terms: BatchTerms) -> None:
        self._store = store
        self._prices = prices
        self._endpoints = endpoints
        self._terms = terms

    async def make(self, caller: Caller, asked: BatchRequest) -> Batch:
        """At the prices in force now. Raises `InvalidField`, `UnknownFile`, `TooManyBatches` or `PricesUnavailable`."""
        if plain_path(asked.endpoint) not in self._endpoints:
            offered = ", ".join(self._endpoints)
            raise InvalidField(("endpoint",), f"must be one of {offered}, with or without /openai before it")
        if not is_id(asked.input_file_id):
            raise UnknownFile(asked.input_file_id)
        new = NewBatch(
            id=f"batch_{fresh_id()}",
            project_id=caller.project_id,
            key_id=caller.key_id,
            input_file_id=asked.input_file_id,
            endpoint=asked.endpoint,
            completion_window=asked.completion_window,
            metadata=orjson.dumps(asked.metadata).decode() if asked.metadata else None,
            pricing_version=(await self._prices.current()).version,
            price_ppm=self._terms.price_ppm,
            window_s=self._terms.window_s,
        )
        return await self._store.make(new, most_unfinished=self._terms.most_unfinished)

    async def find(self, caller: Caller, batch_id: str) -> Batch:
        """Raises `UnknownBatch`."""
        _check_id(batch_id)
        return await self._store.find(caller.project_id, batch_id)

    async def listed(self, caller: Caller, *, limit: int, after: str | None) -> list[Batch]:
        """The newest first; one more than `limit` where there are more. Raises `UnknownBatch` of `after`."""
        if after is not None:
            _check_id(after)
        return await self._store.listed(caller.project_id, limit=limit, after=after)

    async def cancel(self, caller: Caller, batch_id: str) -> Batch:
        """Raises `UnknownBatch` or `BatchEnded`."""
        _check_id(batch_id)
        return await self._store.cancel(caller.project_id, batch_id)


def _check_id(batch_id: str) -> None:
    """Raises `UnknownBatch` of what is no id at all."""
    if not is_id(batch_id):
        raise UnknownBatch(batch_id[:64])
