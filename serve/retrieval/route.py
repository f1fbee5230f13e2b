"""The routes of embeddings, reranking and scores, with the shapes of their answers."""

from typing import Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from serve.http.auth import Authenticate, authenticated_request
from serve.http.openapi import (
    BEARER,
    RATE_LIMIT_HEADERS,
    REQUEST_ID_HEADER,
    REQUEST_ID_PARAMETER,
    OpenAIErrorBody,
    dialect_errors,
    json_body,
    metering_header,
)
from serve.http.request_body import MAX_TOKEN_IDS
from serve.money.prices import Billing, Metering
from serve.retrieval.requests import (
    EmbeddingRequest,
    RerankRequest,
    ScoreRequest,
    embeddings_writer,
    prepare_embeddings,
    prepare_rerank,
    prepare_scores,
    rerank_writer,
    scores_writer,
)
from serve.retrieval.service import RetrievalReply, RetrievalService

_ERRORS = (400, 401, 402, 404, 413, 429, 500, 502, 503)


class ChargedService(BaseModel):
    """The fields that this service adds to a reply."""

    billing: Billing = Field(description="The price of this request.")
    metering: Metering = Field(description="The record of this request.")


class InputUsage(BaseModel):
    """Tokens of a request that generates none."""

    prompt_tokens: int = Field(description="Tokens read.")
    total_tokens: int = Field(description="The same.")


class Embedding(BaseModel):
    object: Literal["embedding"]
    index: int = Field(description="Which of the inputs, from 0.")
    embedding: list[float] | str = Field(
        description="The vector; with `encoding_format: base64` its little-endian 32-bit floats in Base64."
    )


class EmbeddingList(BaseModel):
    """A vector for each input, in their order."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: InputUsage
    service: ChargedService


class RankedText(BaseModel):
    text: str


class RankedDocument(BaseModel):
    index: int = Field(description="Which of the documents, from 0.")
    relevance_score: float = Field(description="Higher is more relevant.")
    document: RankedText | None = Field(None, description="With `return_documents`; else absent.")


class BilledTokens(BaseModel):
    input_tokens: int


class RerankMeta(BaseModel):
    """The fields that Cohere's clients read."""

    api_version: dict[str, str]
    billed_units: BilledTokens
    tokens: BilledTokens


class RerankResponse(BaseModel):
    """The documents, the most relevant first."""

    id: str = Field(description="The request's id.")
    object: Literal["list"]
    model: str
    results: list[RankedDocument] = Field(description="At most `top_n`.")
    meta: RerankMeta
    usage: InputUsage
    service: ChargedService


class Score(BaseModel):
    index: int
    object: Literal["score"]
    score: float = Field(description="Higher is more relevant.")


class ScoreResponse(BaseModel):
    """A score for each pair, in their order."""

    id: str = Field(description="The request's id.")
    object: Literal["list"]
    created: int = Field(description="Unix time.")
    model: str
    data: list[Score]
    usage: InputUsage
    service: ChargedService


def documented(request: type[BaseModel], response: type[BaseModel]) -> dict[str, Any]:
    """The options of a route with these bodies."""
    metering = metering_header("Whether usage is recorded.")
    ok = {
        "model": response,
        "description": "What was computed.",
        "headers": {**REQUEST_ID_HEADER, **RATE_LIMIT_HEADERS, **metering},
    }
    return {
        "response_model": None,
        "responses": {200: ok, **dialect_errors(OpenAIErrorBody, *_ERRORS)},
        "openapi_extra": {
            "parameters": [REQUEST_ID_PARAMETER],
            "requestBody": json_body(request.__name__),
        },
    }


PREFIX = "/openai"
# They read their bodies themselves.
REQUESTS = (EmbeddingRequest, RerankRequest, ScoreRequest)


def retrieval_routes(service: RetrievalService, authenticate: Authenticate) -> APIRouter:
    routes = APIRouter(prefix=PREFIX, tags=["openai"], dependencies=[BEARER])

    @routes.post("/v1/embeddings", **documented(EmbeddingRequest, EmbeddingList))
    async def create_embeddings(request: Request) -> Response:
        """A vector for each text."""
        caller, body = await authenticated_request(
            request, authenticate, EmbeddingRequest, most=MAX_TOKEN_IDS
        )
        prepared = prepare_embeddings(service.models, body)
        write = embeddings_writer(prepared.served.id, body.encoding_format)
        return RetrievalReply(service, caller, prepared, request.state.request_id, write)

    # Cohere's client of the second version adds its own version to the base URL.
    @routes.post("/v2/rerank", include_in_schema=False)
    @routes.post("/v1/rerank", **documented(RerankRequest, RerankResponse))
    async def create_rerank(request: Request) -> Response:
        """The documents in the order of their relevance to the query."""
        caller, body = await authenticated_request(request, authenticate, RerankRequest)
        prepared = prepare_rerank(service.models, body)
        write = rerank_writer(prepared.served.id, body)
        return RetrievalReply(service, caller, prepared, request.state.request_id, write)

    @routes.post("/v1/score", **documented(ScoreRequest, ScoreResponse))
    async def create_scores(request: Request) -> Response:
        """The relevance of each text to the one that it is compared with."""
        caller, body = await authenticated_request(request, authenticate, ScoreRequest)
        prepared = prepare_scores(service.models, body)
        write = scores_writer(prepared.served.id, created=int(service.admissions.clock().timestamp()))
        return RetrievalReply(service, caller, prepared, request.state.request_id, write)

    return routes
