"""Batches of projects: made, listed and cancelled."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import orjson
from pydantic import Field

from billing.batches.batch import Batch, NewBatch, UnknownBatch, UnknownFile
from billing.batches.batch_store import BatchStore
from billing.caller import Caller
from models.errors import InvalidField
from serve.batches.endpoints import Endpoints, plain_path
from serve.batches.files import is_id, refused, whole_number
from serve.config.billing import BatchSettings
from serve.http.middleware import fresh_id
from serve.http.request_body import RequestShape, at_most
from serve.money.prices import PriceBook

# PostgreSQL takes no text with a NUL.
MOST_METADATA = 16
NO_NUL = r"^[^\x00]*$"
MetadataKey = Annotated[str, Field(max_length=64, pattern=NO_NUL)]
MetadataValue = Annotated[str, Field(max_length=512, pattern=NO_NUL)]


def limit_of(asked: Mapping[str, str], *, default: int, most: int) -> int:
    """Raises `InvalidBody`."""
    given = asked.get("limit")
    if given is None:
        return default
    limit = whole_number(given)
    if limit is None or not 1 <= limit <= most:
        raise refused("limit", f"limit: must be from 1 to {most}", "limit")
    return limit


def one_of(asked: Mapping[str, str], name: str, allowed: Sequence[str]) -> str:
    """The first one by default. Raises `InvalidBody`."""
    given = asked.get(name, allowed[0])
    if given not in allowed:
        raise refused(name, f"{name}: must be one of {', '.join(allowed)}", name)
    return given


class BatchRequest(RequestShape):
    """A batch of requests, as OpenAI's clients ask for it."""

    input_file_id: str = Field(min_length=1, max_length=64, description="A file with `purpose: batch`.")
    endpoint: str = Field(max_length=64, description="The route that all of its requests are for.")
    completion_window: Literal["24h"] = Field(
        description="Within which its requests are run; what has not run by then is given up."
    )
    metadata: Annotated[dict[MetadataKey, MetadataValue], at_most(MOST_METADATA)] | None = Field(
        default=None,
        max_length=MOST_METADATA,
        description="What the caller wants to find in it again.",
    )


class Batches:
    """Every method raises `LedgerUnavailable`."""

    def __init__(
        self, store: BatchStore, prices: PriceBook, endpoints: Endpoints, terms: BatchSettings
    ) -> None:
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
            window_s=self._terms.window_hours * 3600,
        )
        return await self._store.make(new, most_unfinished=self._terms.max_unfinished_per_project)

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
