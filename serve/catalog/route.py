"""The public price list: what is served here, and for how much."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from billing.price import ModelPrice
from models.catalog import Catalog, ChatModel
from serve.catalog import response
from serve.http.openapi import REQUEST_ID_HEADER, error_responses
from serve.money.price_book import PriceBook, price_of
from serve.money.service_block import price_fields


def model_fields(model: ChatModel, price: ModelPrice) -> response.Model:
    """A model at its price in force, as the interface shows it."""
    return response.Model(
        id=model.id,
        name=model.name,
        context_length=model.context_length,
        **price_fields(price),
    )


def catalog_routes(catalog: Catalog, prices: PriceBook, collection_threshold_cents: int) -> APIRouter:
    routes = APIRouter(tags=["catalog"])

    @routes.get(
        "/v1/catalog",
        response_model=response.Catalog,
        responses={200: {"headers": REQUEST_ID_HEADER}, **error_responses(503)},
    )
    async def read_catalog() -> Response:
        """The current public models and the version of their price list. Needs no key."""
        price_list = await prices.current()
        models = [
            response.CatalogModel(
                **model_fields(model, price_of(price_list, model.id)).model_dump(),
                blurb=model.blurb,
                is_default=model.is_default,
            )
            for model in catalog.models
        ]
        body = response.Catalog(
            pricing_version=price_list.version,
            collection_threshold_cents=collection_threshold_cents,
            models=models,
        )
        return Response(body.model_dump_json(), media_type="application/json")

    return routes
