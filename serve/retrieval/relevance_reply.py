"""The bodies of `rerank` and `score` replies: Cohere's, Jina's and vLLM's, with pith's `service` beside them."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import orjson

from models.retrieval import Computed
from serve.retrieval.charged_reply import Write
from serve.retrieval.embedding_reply import input_usage
from serve.retrieval.rerank_request import RerankRequest


def rerank_writer(model_id: str, body: RerankRequest) -> Write:
    """The best first. `meta` is Cohere's, `usage` Jina's."""
    texts = body.texts

    def result(index: int, score: Any) -> dict[str, Any]:
        found = {"index": index, "relevance_score": score}
        return {**found, "document": {"text": texts[index]}} if body.return_documents else found

    def write(computed: Computed, charged: dict[str, Any], request_id: str) -> Iterator[bytes]:
        scores = np.frombuffer(computed.data, "<f4")
        order = np.argsort(-scores, kind="stable")[: body.most_results].tolist()
        usage = input_usage(charged)
        tokens = {"input_tokens": usage["prompt_tokens"]}
        yield _json(
            {
                "id": request_id,
                "object": "list",
                "model": model_id,
                "results": [result(index, scores[index]) for index in order],
                "meta": {"api_version": {"version": "2"}, "billed_units": tokens, "tokens": tokens},
                "usage": usage,
                "service": charged["service"],
            }
        )

    return write


def scores_writer(model_id: str, *, created: int) -> Write:
    """In the order of the texts. `created` is Unix time."""

    def write(computed: Computed, charged: dict[str, Any], request_id: str) -> Iterator[bytes]:
        scores = np.frombuffer(computed.data, "<f4")
        yield _json(
            {
                "id": request_id,
                "object": "list",
                "created": created,
                "model": model_id,
                "data": [{"index": at, "object": "score", "score": score} for at, score in enumerate(scores)],
                "usage": input_usage(charged),
                "service": charged["service"],
            }
        )

    return write


def _json(fields: dict[str, Any]) -> bytes:
    return orjson.dumps(fields, option=orjson.OPT_SERIALIZE_NUMPY)
