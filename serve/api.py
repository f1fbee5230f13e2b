"""The ASGI application, built from plain collaborators: it knows no Ray, so it runs under test as it is."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial

from fastapi import APIRouter, FastAPI, Request
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp

from billing.accounts.accounts import Accounts
from billing.caller import Caller
from billing.errors import LimitsUnavailable, RateLimited
from billing.rate_limits.rate_limits import RateLimits
from models.catalog import Catalog
from serve.account.route import AccountReader, AccountRoutes, account_routes
from serve.batches.batches import BatchRequest
from serve.batches.files import FORM_BYTES
from serve.batches.routes import PATH, FileRoutes, batch_routes, file_routes
from serve.batches.wiring import BatchRoom
from serve.catalog.offered import Away
from serve.catalog.route import catalog_routes, model_routes
from serve.chat.request import ChatCompletionRequest
from serve.chat.route import chat_routes
from serve.chat.service import ChatService
from serve.compress.request import BatchCompressRequest, CompressMessagesRequest, CompressRequest
from serve.compress.route import CompressRoutes, compress_routes
from serve.dialects.anthropic.message import anthropic_key, anthropic_message_routes
from serve.dialects.anthropic.request import AnthropicRequest
from serve.dialects.models import anthropic_model_routes, listed_models, openai_model_routes
from serve.dialects.openai.chat_completions import OpenAIChatRequest, openai_chat_routes
from serve.dialects.openai.completions import CompletionRequest, completion_routes
from serve.dialects.openai.responses.request import ResponseRequest
from serve.dialects.openai.responses.response import ResponseRoutes, openai_response_routes
from serve.dialects.openai.responses.stored_responses import StoredResponses
from serve.http.auth import Authenticate, authenticator
from serve.http.error_dialects import misplaced_response, response_of, right_base
from serve.http.errors import STATUSES, Problem, http_headers, http_problem, problem_of, unexpected_problem
from serve.http.middleware import (
    BodyLimitMiddleware,
    DialectPathMiddleware,
    Pacer,
    PacingMiddleware,
    RequestIdMiddleware,
    open_to,
)
from serve.http.openapi import ServedModels, docs_routes, document_request_models, health_routes
from serve.http.replies import REFUSALS, PlainRoute, count_refusals, counted, rate_limit_headers
from serve.metrics.installed import version_of
from serve.metrics.request_watch import HttpMetrics, RequestWatchMiddleware, Watch
from serve.money.prices import PriceBook
from serve.originals.route import OriginalsRoute, original_routes
from serve.playground.page_routes import About, page_routes
from serve.retrieval.route import REQUESTS as RETRIEVAL_REQUESTS
from serve.retrieval.route import retrieval_routes
from serve.retrieval.service import RetrievalModels, RetrievalService
from serve.tracing.request_record import current_record
from serve.transparency.log_reader import LogReader
from serve.transparency.route import log_routes

INTERFACE_VERSION = "1.2.1"
Answer = Callable[[Request, Exception], Awaitable[Response]]
DESCRIPTION = """OpenAI-compatible chat completions on your own machines, metered and billed on every request.

Keys are project keys, sent as `Authorization: Bearer <API_KEY>`. Every response carries `X-Request-ID`.
"""


@dataclass(frozen=True, kw_only=True)
class Services:
    """The services behind the routes. `ready` says whether the default model answers, `away` which models
    cannot be started; without `compress` there are no
    routes of compression, without `batches` none of files and batches, without `playground` no page at `/`, without
    `account` no usage and limits, and without `log` no transparency log. `watch` writes of every request that has its
    id."""

    catalog: Catalog
    chat: ChatService
    accounts: Accounts
    limiter: RateLimits
    prices: PriceBook
    ready: Callable[[], Awaitable[bool]]
    away: Away
    metrics: HttpMetrics
    clock: Callable[[], datetime]
    max_body_bytes: int
    collection_threshold_cents: int
    compress: CompressRoutes | None = None
    batches: BatchRoom | None = None
    retrieval: RetrievalService | None = None
    responses: StoredResponses | None = None
    playground: About | None = None
    account: AccountReader | None = None
    log: LogReader | None = None
    cors_origins: Sequence[str] = ()
    watch: Watch | None = None


def create_api(services: Services) -> ASGIApp:
    """The whole HTTP interface."""
    api = _empty_api(services.metrics)
    callers = Callers(services.accounts, services.limiter, services.clock)
    _include_contract(api, callers, services)
    _include_dialects(api, callers, services)
    larger = _include_optional(api, callers, services)
    # Routes are tried in order: the one that carries the load comes first.
    api.router.routes.sort(key=lambda route: not isinstance(route, PlainRoute))
    _document(api, services)
    bounded = BodyLimitMiddleware(api, services.max_body_bytes, larger)
    watched = RequestWatchMiddleware(PacingMiddleware(bounded, Pacer()), services.metrics, services.watch)
    return open_to(services.cors_origins, DialectPathMiddleware(RequestIdMiddleware(watched)))


# What they read of a body is strict where OpenAPI cannot say so.
DIALECT_REQUESTS = (OpenAIChatRequest, CompletionRequest, ResponseRequest, AnthropicRequest)


@dataclass(frozen=True)
class Callers:
    """Callers by their keys, each counted against its limits."""

    accounts: Accounts
    limiter: RateLimits
    clock: Callable[[], datetime]

    @cached_property
    def bearer(self) -> Authenticate:
        return self._counting(authenticator(self.accounts, self.clock))

    @cached_property
    def by_either_header(self) -> Authenticate:
        return self._counting(authenticator(self.accounts, self.clock, key_of=anthropic_key))

    def _counting(self, authenticate: Authenticate) -> Authenticate:
        async def caller(request: Request) -> Caller:
            found = await authenticate(request)
            if request.method == "POST":
                count_refusals(request, partial(self._count, found))
            return found

        return caller

    async def _count(self, caller: Caller) -> None:
        admission = await self.limiter.admit(caller, tokens_bound=0, now=self.clock())
        await admission.done(0)


def _include(api: FastAPI, router: APIRouter) -> None:
    """`include_router` would build each route again, which takes as long as all else here."""
    api.router.routes.extend(router.routes)


def _include_contract(api: FastAPI, callers: Callers, services: Services) -> None:
    catalog, prices, limiter, clock = services.catalog, services.prices, callers.limiter, callers.clock
    _include(api, docs_routes())
    _include(api, health_routes(services.ready, services.away))
    _include(api, catalog_routes(catalog, prices, services.collection_threshold_cents))
    _include(api, model_routes(catalog, prices, limiter, callers.bearer, clock, services.away))
    _include(api, chat_routes(services.chat, callers.bearer))


def _empty_api(metrics: HttpMetrics) -> FastAPI:
    """Without a route; its errors have the contract's shape."""
    api = FastAPI(
        title="pith",
        version=INTERFACE_VERSION,
        # The viewers put the interface's version beside the title, where it looks like the program's.
        summary=f"interface {INTERFACE_VERSION} · pith {version_of('pith') or '(not installed)'}",
        description=DESCRIPTION,
        redirect_slashes=False,
        # FastAPI's own pages load their viewers from a CDN.
        docs_url=None,
        redoc_url=None,
    )
    _answer_errors(api, metrics)
    return api


def _include_dialects(api: FastAPI, callers: Callers, services: Services) -> None:
    bearer, either, limiter, clock = callers.bearer, callers.by_either_header, callers.limiter, callers.clock
    catalog, prices, chat = services.catalog, services.prices, services.chat
    _include(api, openai_chat_routes(chat, bearer))
    _include(api, completion_routes(chat, bearer))
    responses = ResponseRoutes(chat, limiter, clock, services.responses)
    _include(api, openai_response_routes(responses, bearer))
    others = RetrievalModels(()) if services.retrieval is None else services.retrieval.models
    listed = listed_models(catalog, others)
    _include(api, openai_model_routes(listed, prices, limiter, bearer, clock, services.away))
    _include(api, anthropic_message_routes(chat, either))
    _include(api, anthropic_model_routes(catalog, limiter, either, clock, services.away))
    if services.retrieval is not None and others.models:
        _include(api, retrieval_routes(services.retrieval, bearer))


def _include_optional(api: FastAPI, callers: Callers, services: Services) -> dict[str, int]:
    """The routes that not every server has. Returns paths whose bodies may be larger than others, with their bounds."""
    limiter, bearer, clock, larger = callers.limiter, callers.bearer, callers.clock, dict[str, int]()
    if services.account is not None:
        account = AccountRoutes(services.account, limiter, bearer, clock)
        _include(api, account_routes(account))
    if services.log is not None:
        _include(api, log_routes(services.log))
    if services.playground is not None:
        _include(api, page_routes(services.playground, services.prices))
    if services.batches is not None:
        files = FileRoutes(services.batches.files, limiter, bearer, clock)
        _include(api, file_routes(files))
        _include(api, batch_routes(services.batches.batches, files))
        larger[PATH] = services.batches.files.terms.max_bytes + FORM_BYTES
    if services.compress is not None:
        _include(api, compress_routes(services.compress, bearer))
        originals = OriginalsRoute(services.compress.service.originals, limiter, clock)
        _include(api, original_routes(originals, bearer))
    return larger


def _document(api: FastAPI, services: Services) -> None:
    """The bodies that routes read themselves."""
    compress, retrieval = services.compress, services.retrieval
    models = tuple(model.id for model in services.catalog.models)
    compressors = () if compress is None else tuple(compress.service.model_ids)
    bodies: list[type[BaseModel]] = [ChatCompletionRequest, *DIALECT_REQUESTS]
    bodies += RETRIEVAL_REQUESTS if retrieval is not None and retrieval.models.models else ()
    bodies += [BatchRequest] if services.batches is not None else ()
    if compress is not None:
        bodies += (CompressRequest, CompressMessagesRequest, BatchCompressRequest)
    document_request_models(api, ServedModels(models, compressors), *bodies)


def _answer_errors(api: FastAPI, metrics: HttpMetrics) -> None:
    for kind in STATUSES:
        api.add_exception_handler(kind, _answer)
    limited = _rate_limit_answer(metrics)
    api.add_exception_handler(RateLimited, limited)
    for kind in REFUSALS:
        api.add_exception_handler(kind, _refusal_answer(limited))
    api.add_exception_handler(HTTPException, _answer_http)
    api.add_exception_handler(Exception, _answer_unexpected)


def _response(request: Request, problem: Problem) -> Response:
    return response_of(problem, request.url.path, request.state.request_id)


async def _answer(request: Request, error: Exception) -> Response:
    current_record().fail(error)
    return _response(request, problem_of(error))


def _rate_limit_answer(metrics: HttpMetrics) -> Answer:
    async def answer(request: Request, error: Exception) -> Response:
        assert isinstance(error, RateLimited)
        metrics.rate_limited(error)
        current_record().fail(error)
        response = _response(request, problem_of(error))
        response.headers.update(rate_limit_headers(error.state))
        return response

    return answer


def _refusal_answer(limited: Answer) -> Answer:
    async def answer(request: Request, error: Exception) -> Response:
        try:
            await counted(request)
        except RateLimited as refused:
            return await limited(request, refused)
        except LimitsUnavailable as unavailable:
            return await _answer(request, unavailable)
        return await _answer(request, error)

    return answer


async def _answer_unexpected(request: Request, error: Exception) -> Response:
    current_record().fail(error)
    return _response(request, unexpected_problem())


async def _answer_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path, detail = request.url.path, f"{error.detail}: {request.method} {request.url.path}"
    if error.status_code == 404 and (base := right_base(path)) is not None:
        problem = http_problem(404, f"{detail}; {base.hint}")
        return misplaced_response(problem, base, path, request.state.request_id)
    response = _response(request, http_problem(error.status_code, detail))
    response.headers.update(http_headers(request, error))
    return response
