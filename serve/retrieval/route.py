"""Embeddings, reranking and scores as OpenAI's, Cohere's, Jina's and vLLM's clients ask for them."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from serve.http.auth import Authenticate, authenticated_request
from serve.http.openapi import BEARER
from serve.http.request_body import MAX_TOKEN_IDS
from serve.retrieval.charged_reply import RetrievalReply
from serve.retrieval.embedding_reply import embeddings_writer
from serve.retrieval.embedding_request import EmbeddingRequest, prepare_embeddings
from serve.retrieval.relevance_reply import rerank_writer, scores_writer
from serve.retrieval.rerank_request import RerankRequest, prepare_rerank
from serve.retrieval.response import EmbeddingList, RerankResponse, ScoreResponse, documented
from serve.retrieval.score_request import ScoreRequest, prepare_scores
from serve.retrieval.service import RetrievalService

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
        """How relevant each text is to the one that it is compared with."""
        caller, body = await authenticated_request(request, authenticate, ScoreRequest)
        prepared = prepare_scores(service.models, body)
        write = scores_writer(prepared.served.id, created=int(service.admissions.clock().timestamp()))
        return RetrievalReply(service, caller, prepared, request.state.request_id, write)

    return routes
