"""`/anthropic/v1/models`: the chat models, in the shape that Anthropic's clients list."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from billing.caller import ALL_POWERS, KeyPowers
from billing.rate_limits.rate_limits import RateLimits
from models.catalog import Catalog, ChatModel
from models.errors import UnknownModel
from serve.dialects.documentation import anthropic_operation
from serve.http.auth import Authenticate
from serve.http.limits import rate_limit_headers

# Anthropic's own word for a date that is not known.
UNKNOWN = datetime.fromtimestamp(0, UTC).isoformat().replace("+00:00", "Z")


def anthropic_model_routes(
    catalog: Catalog, limiter: RateLimits, authenticate: Authenticate, clock: Callable[[], datetime]
) -> APIRouter:
    """The list and each of its models. They are public, as `/v1/catalog` is; a key that is given must be right, and its
    requests count against a limit of their own."""
    routes = APIRouter(prefix="/anthropic/v1", tags=["anthropic"])
    models = [_fields(model) for model in catalog.models]

    def listed(powers: KeyPowers) -> dict[str, Any]:
        allowed = [one for one in models if powers.allows_model(one["id"])]
        ids = [one["id"] for one in allowed] or [None]
        return {"data": allowed, "has_more": False, "first_id": ids[0], "last_id": ids[-1]}

    async def answer(request: Request, body: Callable[[KeyPowers], Any]) -> Response:
        headers: dict[str, str] = {}
        powers = ALL_POWERS
        if request.headers.get("authorization") or request.headers.get("x-api-key"):
            caller = await authenticate(request)
            powers = caller.powers
            admission = await limiter.admit(caller.counted_apart("models"), tokens_bound=0, now=clock())
            await admission.done(0)
            headers = rate_limit_headers(admission.headers_state)
        return Response(orjson.dumps(body(powers)), media_type="application/json", headers=headers)

    @routes.head("/models", include_in_schema=False)
    @routes.get("/models", **anthropic_operation("models-list", 429, is_billed=False))
    async def list_anthropic_models(request: Request) -> Response:
        """All models on one page, the default first."""
        return await answer(request, listed)

    @routes.head("/models/{model_id:path}", include_in_schema=False)
    @routes.get(
        "/models/{model_id:path}",
        **anthropic_operation("models", 404, 429, is_billed=False, path_parameters=["model_id"]),
    )
    async def read_anthropic_model(request: Request) -> Response:
        """One model; 404 where there is none of this id."""
        model_id = request.path_params["model_id"]

        def found(powers: KeyPowers) -> dict[str, Any]:
            model = catalog.get(model_id)
            if not powers.allows_model(model.id):
                raise UnknownModel(model.id, tuple(one["id"] for one in listed(powers)["data"]))
            return _fields(model)

        return await answer(request, found)

    return routes


def _fields(model: ChatModel) -> dict[str, Any]:
    return {
        "type": "model",
        "id": model.id,
        "display_name": model.name,
        "created_at": UNKNOWN,
        "lifecycle": "active",
        "max_input_tokens": model.context_length,
        "max_tokens": model.context_length,
    }
