"""The ASGI application, built from plain collaborators: it knows no Ray, so it runs under test as it is."""

from collections.abc import Awaitable, Callable
from datetime import datetime

from fastapi import FastAPI, Request
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp

from billing.accounts.accounts import Accounts
from billing.errors import RateLimited
from billing.rate_limits.rate_limits import RateLimits
from models.catalog import Catalog
from serve.catalog.route import catalog_routes, model_routes
from serve.chat.request import ChatCompletionRequest
from serve.chat.route import chat_routes
from serve.chat.service import ChatService
from serve.compress.request import BatchCompressRequest, CompressRequest
from serve.compress.route import CompressRoutes, compress_routes
from serve.http.auth import authenticator
from serve.http.body_limit import BodyLimitMiddleware
from serve.http.docs_pages import docs_routes
from serve.http.errors import STATUSES, http_problem, problem_of, unexpected_problem
from serve.http.health import health_routes
from serve.http.openapi import ServedModels, document_request_models
from serve.http.pacing import Pacer, PacingMiddleware
from serve.http.plain_route import PlainRoute
from serve.http.rate_limit_headers import rate_limit_headers
from serve.http.request_id import RequestIdMiddleware
from serve.metrics.http import HttpMetrics, MetricsMiddleware
from serve.money.price_book import PriceBook

INTERFACE_VERSION = "1.2.1"
DESCRIPTION = """OpenAI-compatible chat completions on your own machines, metered and billed on every request.

Keys are project keys, sent as `Authorization: Bearer <API_KEY>`. Every response carries `X-Request-ID`.
"""


def create_api(
    *,
    catalog: Catalog,
    chat: ChatService,
    accounts: Accounts,
    limiter: RateLimits,
    prices: PriceBook,
    ready: Callable[[], Awaitable[bool]],
    metrics: HttpMetrics,
    clock: Callable[[], datetime],
    max_body_bytes: int,
    collection_threshold_cents: int,
    compress: CompressRoutes | None = None,
) -> ASGIApp:
    """The whole HTTP interface. `ready` says whether the default model answers; without `compress`, the compression
    routes are left out."""
    api = FastAPI(
        title="pith",
        version=INTERFACE_VERSION,
        description=DESCRIPTION,
        redirect_slashes=False,
        # FastAPI's own pages load their viewers from a CDN.
        docs_url=None,
        redoc_url=None,
    )
    authenticate = authenticator(accounts, clock)
    api.include_router(docs_routes())
    api.include_router(health_routes(ready))
    api.include_router(catalog_routes(catalog, prices, collection_threshold_cents))
    api.include_router(model_routes(catalog, prices, limiter, authenticate, clock))
    api.include_router(chat_routes(chat, authenticate))
    for kind in STATUSES:
        api.add_exception_handler(kind, _answer)
    api.add_exception_handler(RateLimited, _rate_limit_answer(metrics))
    api.add_exception_handler(HTTPException, _answer_http)
    api.add_exception_handler(Exception, _answer_unexpected)
    documented: list[type[BaseModel]] = [ChatCompletionRequest]
    if compress is not None:
        api.include_router(compress_routes(compress, authenticate))
        documented += [CompressRequest, BatchCompressRequest]
    # Routes are tried in order: the one that carries the load comes first.
    api.router.routes.sort(key=lambda route: not isinstance(route, PlainRoute))
    compressors = compress.service.model_ids if compress is not None else ()
    served = ServedModels(tuple(model.id for model in catalog.models), tuple(compressors))
    document_request_models(api, served, *documented)
    bounded = BodyLimitMiddleware(api, max_body_bytes)
    return RequestIdMiddleware(MetricsMiddleware(PacingMiddleware(bounded, Pacer()), metrics))


async def _answer(request: Request, error: Exception) -> Response:
    return problem_of(error).response()


def _rate_limit_answer(metrics: HttpMetrics) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def answer(request: Request, error: Exception) -> Response:
        assert isinstance(error, RateLimited)
        metrics.rate_limited(error)
        response = problem_of(error).response()
        response.headers.update(rate_limit_headers(error.state))
        return response

    return answer


async def _answer_unexpected(request: Request, error: Exception) -> Response:
    return unexpected_problem().response()


async def _answer_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    response = http_problem(
        error.status_code, f"{error.detail}: {request.method} {request.url.path}"
    ).response()
    response.headers.update(error.headers or {})
    return response
