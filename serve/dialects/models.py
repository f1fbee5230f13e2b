"""`/openai/v1/models` and `/anthropic/v1/models`: the models served here, as each dialect's clients list them."""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from billing.caller import ALL_POWERS, KeyPowers
from billing.errors import PricesUnavailable
from billing.price import ModelPrice
from billing.rate_limits.rate_limits import RateLimits
from models.catalog import Catalog, ChatModel
from models.errors import UnknownModel
from serve.catalog.offered import Away, unavailable_field
from serve.dialects.documentation import anthropic_operation, openai_operation
from serve.http.auth import Authenticate
from serve.http.openapi import BEARER
from serve.http.replies import rate_limit_headers
from serve.money.prices import PriceBook, input_price_fields, price_fields
from serve.retrieval.service import RetrievalModels

ModelKind = Literal["chat", "embedding", "rerank"]
OWNER = "pith"


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A model as the list shows it. `max_model_len` is in tokens: of prompt and reply, or of one text."""

    id: str
    kind: ModelKind
    max_model_len: int
    name: str
    # Of an adapter: the model that serves it.
    parent: str | None = None

    def fields(self, created: int, price: ModelPrice | None) -> dict[str, Any]:
        """OpenAI's model object, with vLLM's `root`, `parent` and `max_model_len`, what it is for and what it costs."""
        return {
            "id": self.id,
            "object": "model",
            "created": created,
            "owned_by": OWNER,
            "root": self.parent or self.id,
            "parent": self.parent,
            "max_model_len": self.max_model_len,
            "kind": self.kind,
            "name": self.name,
            **(
                {}
                if price is None
                else price_fields(price)
                if self.kind == "chat"
                else input_price_fields(price)
            ),
        }


def listed_models(catalog: Catalog, retrieval: RetrievalModels) -> list[ListedModel]:
    """The chat models in the catalog's order, then the others in theirs: load tools take the first to chat with."""
    chat = [
        ListedModel(model.id, "chat", model.context_length, model.name, model.adapter_of)
        for model in catalog.models
    ]
    return chat + [
        ListedModel(model.id, model.kind, model.context_length, model.name) for model in retrieval.models
    ]


def openai_model_routes(
    models: Sequence[ListedModel],
    prices: PriceBook,
    limiter: RateLimits,
    authenticate: Authenticate,
    clock: Callable[[], datetime],
    away: Away,
) -> APIRouter:
    """The list and each of its models. With a key they count against a limit of their own, as `/v1/models` does.

    No key is needed, since load tools send none and `/v1/catalog` says the same to everybody; a wrong one is a 401.
    """
    routes = APIRouter(prefix="/openai/v1", tags=["openai"], dependencies=[BEARER])
    created = int(clock().timestamp())
    ids = [model.id for model in models]

    async def objects() -> dict[str, dict[str, Any]]:
        price_of: Callable[[str], ModelPrice | None] = dict[str, ModelPrice]().get
        # Clients need the list before anything else: while the ledger is away it is without prices.
        with suppress(PricesUnavailable):
            price_of = (await prices.current()).of
        gone = await away()
        return {
            model.id: model.fields(created, price_of(model.id)) | unavailable_field(model.id, gone)
            for model in models
        }

    allowed = _Allowed(limiter, authenticate, clock)

    @routes.head("/models", include_in_schema=False)
    @routes.get("/models", **openai_operation("models/list", 429, needs_key=False, is_billed=False))
    async def list_models(request: Request) -> Response:
        """The models of every kind, the default chat model first."""
        powers, headers = await allowed.powers(request)
        found = [one for id, one in (await objects()).items() if powers.allows_model(id)]
        return _answer({"object": "list", "data": found}, headers)

    @routes.head("/models/{model_id:path}", include_in_schema=False)
    @routes.get(
        "/models/{model_id:path}",
        **openai_operation(
            "models/retrieve",
            404,
            429,
            needs_key=False,
            is_billed=False,
            path_parameters=["model_id"],
        ),
    )
    async def retrieve_model(request: Request) -> Response:
        """One model; 404 where there is none of this id."""
        model_id = request.path_params["model_id"]
        powers, headers = await allowed.powers(request)
        if model_id not in ids or not powers.allows_model(model_id):
            raise UnknownModel(model_id, tuple(filter(powers.allows_model, ids)))
        return _answer((await objects())[model_id], headers)

    return routes


@dataclass(frozen=True, slots=True)
class _Allowed:
    """The models that a request may see: all of them, without a key."""

    limiter: RateLimits
    authenticate: Authenticate
    clock: Callable[[], datetime]
    key_headers: Sequence[str] = ("authorization",)

    async def powers(self, request: Request) -> tuple[KeyPowers, dict[str, str]]:
        """With the headers that tell of the limit. Raises what a wrong key raises, and `RateLimited`."""
        if not any(map(request.headers.get, self.key_headers)):
            return ALL_POWERS, {}
        caller = await self.authenticate(request)
        admission = await self.limiter.admit(caller.counted_apart("models"), tokens_bound=0, now=self.clock())
        await admission.done(0)
        return caller.powers, rate_limit_headers(admission.headers_state)


def _answer(body: dict[str, Any], headers: dict[str, str]) -> Response:
    return Response(orjson.dumps(body), media_type="application/json", headers=headers)


# Anthropic's own word for a date that is not known.
UNKNOWN = datetime.fromtimestamp(0, UTC).isoformat().replace("+00:00", "Z")


def anthropic_model_routes(
    catalog: Catalog,
    limiter: RateLimits,
    authenticate: Authenticate,
    clock: Callable[[], datetime],
    away: Away,
) -> APIRouter:
    """The list and each of its models. They are public, as `/v1/catalog` is; a key that is given must be right, and its
    requests count against a limit of their own."""
    routes = APIRouter(prefix="/anthropic/v1", tags=["anthropic"])

    def listed(powers: KeyPowers, gone: Collection[str]) -> dict[str, Any]:
        found = [_fields(model, gone) for model in catalog.models if powers.allows_model(model.id)]
        ids = [one["id"] for one in found] or [None]
        return {"data": found, "has_more": False, "first_id": ids[0], "last_id": ids[-1]}

    allowed = _Allowed(limiter, authenticate, clock, ("authorization", "x-api-key"))

    @routes.head("/models", include_in_schema=False)
    @routes.get("/models", **anthropic_operation("models-list", 429, is_billed=False))
    async def list_anthropic_models(request: Request) -> Response:
        """All models on one page, the default first."""
        powers, headers = await allowed.powers(request)
        return _answer(listed(powers, await away()), headers)

    @routes.head("/models/{model_id:path}", include_in_schema=False)
    @routes.get(
        "/models/{model_id:path}",
        **anthropic_operation("models", 404, 429, is_billed=False, path_parameters=["model_id"]),
    )
    async def read_anthropic_model(request: Request) -> Response:
        """One model; 404 where there is none of this id."""
        model_id = request.path_params["model_id"]
        powers, headers = await allowed.powers(request)
        model = catalog.get(model_id)
        if not powers.allows_model(model.id):
            raise UnknownModel(model.id, tuple(filter(powers.allows_model, catalog.ids)))
        return _answer(_fields(model, await away()), headers)

    return routes


def _fields(model: ChatModel, gone: Collection[str]) -> dict[str, Any]:
    return {
        "type": "model",
        "id": model.id,
        "display_name": model.name,
        "created_at": UNKNOWN,
        "lifecycle": "active",
        "max_input_tokens": model.context_length,
        "max_tokens": model.context_length,
        **unavailable_field(model.id, gone),
    }
