"""The routes of the models on offer, and their answers."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import orjson
from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from billing.price import ModelPrice
from billing.rate_limits.rate_limits import RateLimits
from models.catalog import Catalog as ChatModels
from models.catalog import ChatModel
from serve.catalog.offered import Away, unavailable_field
from serve.http.auth import Authenticate
from serve.http.openapi import (
    BEARER,
    RATE_LIMIT_HEADERS,
    REQUEST_ID_HEADER,
    REQUEST_ID_PARAMETER,
    error_responses,
)
from serve.http.replies import rate_limit_headers
from serve.money.prices import PriceBook, document_cached_price, price_fields, price_of


def document_some_fields(schema: dict[str, Any]) -> None:
    """With the fields that only some models have."""
    document_cached_price(schema)
    schema["properties"]["unavailable"] = {
        "type": "string",
        "description": "Why requests to it are refused now; only there while they are.",
    }


class Model(BaseModel):
    """A model and its prices."""

    model_config = ConfigDict(extra="allow", json_schema_extra=document_some_fields)

    id: str = Field(description="What a request names in `model`.")
    name: str = Field(description="Display name.")
    context_length: int = Field(description="Maximum tokens of prompt and reply together.")
    input_price_per_mtok: float = Field(description="USD per million input tokens.")
    output_price_per_mtok: float = Field(description="USD per million output tokens.")
    minimum_request_charge_usd: float = Field(
        description="The least that a successfully metered request with this model costs, in USD."
    )


class CatalogModel(Model):
    """A model as the public catalog shows it."""

    blurb: str = Field(description="What the model is for, in a sentence or two.")
    is_default: bool = Field(description="Whether a request that names no model gets this one.")


class Catalog(BaseModel):
    """The public models and the version of their price list."""

    pricing_version: int = Field(description="Rises when a price changes; every charge names it.")
    collection_threshold_cents: int = Field(
        ge=1, description="Minimum balance at which charges are collected."
    )
    models: list[CatalogModel] = Field(description="In the operator's order; the first is the default.")


def model_fields(model: ChatModel, price: ModelPrice) -> Model:
    """A model at its price in force, as the interface shows it."""
    return Model(
        id=model.id,
        name=model.name,
        context_length=model.context_length,
        **price_fields(price),
    )


def catalog_routes(catalog: ChatModels, prices: PriceBook, collection_threshold_cents: int) -> APIRouter:
    routes = APIRouter(tags=["catalog"])

    @routes.get(
        "/v1/catalog",
        response_model=Catalog,
        responses={200: {"headers": REQUEST_ID_HEADER}, **error_responses(503)},
    )
    async def read_catalog() -> Response:
        """The current public models and the version of their price list. Needs no key."""
        price_list = await prices.current()
        models = [
            CatalogModel(
                **model_fields(model, price_of(price_list, model.id)).model_dump(),
                blurb=model.blurb,
                is_default=model.is_default,
            )
            for model in catalog.models
        ]
        body = Catalog(
            pricing_version=price_list.version,
            collection_threshold_cents=collection_threshold_cents,
            models=models,
        )
        return Response(body.model_dump_json(), media_type="application/json")

    return routes


def model_routes(
    catalog: ChatModels,
    prices: PriceBook,
    limiter: RateLimits,
    authenticate: Authenticate,
    clock: Callable[[], datetime],
    away: Away,
) -> APIRouter:
    routes = APIRouter(tags=["models"], dependencies=[BEARER])

    @routes.get(
        "/v1/models",
        response_model=list[Model],
        openapi_extra={"parameters": [REQUEST_ID_PARAMETER]},
        responses={
            200: {"headers": {**REQUEST_ID_HEADER, **RATE_LIMIT_HEADERS}},
            **error_responses(401, 403, 429, 500, 503),
        },
    )
    async def list_models(request: Request) -> Response:
        """The models that the key may use with their prices, in the catalog's order. One that cannot be started now
        says so in `unavailable`."""
        caller = await authenticate(request)
        admission = await limiter.admit(caller.counted_apart("models"), tokens_bound=0, now=clock())
        try:
            price_list = await prices.current()
            gone = await away()
            models = [
                model_fields(model, price_of(price_list, model.id)).model_dump()
                | unavailable_field(model.id, gone)
                for model in catalog.models
                if caller.powers.allows_model(model.id)
            ]
        finally:
            await admission.done(0)
        return Response(
            orjson.dumps(models),
            media_type="application/json",
            headers=rate_limit_headers(admission.headers_state),
        )

    return routes
