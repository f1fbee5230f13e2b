"""The replies to embeddings, rerank and score requests: charged, sent in pieces, ended when their client has gone."""

import asyncio
import base64
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any, Literal

import numpy as np
import orjson
from starlette.responses import Response, StreamingResponse

from billing.caller import Caller
from models.embedding_backends import Computed
from serve.http.replies import Client
from serve.money.admission import Admitted
from serve.money.charged_reply import ChargedReply
from serve.money.held_request import Receipt
from serve.money.prices import charged_fields
from serve.retrieval.requests import RerankRequest
from serve.retrieval.service import PreparedRetrieval, RetrievalService

# Numbers that are written at a time: about a millisecond.
_NUMBERS_AT_ONCE = 16_384


def embedding_items(computed: Computed, encoding: Literal["float", "base64"]) -> Iterator[bytes]:
    """The items of `data` with commas between them, some at a time."""
    rows = np.frombuffer(computed.data, "<f4").reshape(-1, computed.width)
    step = max(1, _NUMBERS_AT_ONCE // computed.width)
    for start in range(0, len(rows), step):
        some = [_item(start + at, row, encoding) for at, row in enumerate(rows[start : start + step])]
        written = orjson.dumps(some, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1]
        yield written if start == 0 else b"," + written


def _item(index: int, row: Any, encoding: Literal["float", "base64"]) -> dict[str, Any]:
    # orjson writes a float32 with the digits that it needs.
    value = row if encoding == "float" else base64.b64encode(row.tobytes()).decode()
    return {"object": "embedding", "index": index, "embedding": value}


logger = logging.getLogger("pith.retrieval")

# Writes the body: what was computed, the fields of its charge, and the request's id.
Write = Callable[[Computed, "dict[str, Any]", str], Iterator[bytes]]


class RetrievalReply(ChargedReply):
    """Charged before the first byte of the reply leaves."""

    def __init__(
        self,
        service: RetrievalService,
        caller: Caller,
        prepared: PreparedRetrieval,
        request_id: str,
        write: Write,
    ) -> None:
        terms = [service.token_terms(caller, prepared)]
        super().__init__(service.admissions, caller, request_id, prepared.route, terms, logger)
        self._service = service
        self._prepared = prepared
        self._write = write

    async def answer(self, admitted: Admitted, client: Client) -> Response:
        computed, receipt = await self._service.compute(
            self._prepared, admitted, client, lambda found: self.also_write(partial(self._pieces, found))
        )
        headers = admitted.reply_headers(receipt.settlement.status)
        pieces = self._pieces(computed, receipt)
        return StreamingResponse(_in_turns(pieces), headers=headers, media_type="application/json")

    def _pieces(self, computed: Computed, receipt: Receipt) -> Iterator[bytes]:
        return self._write(computed, charged_fields(receipt), self.request_id)


async def _in_turns(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Each piece is written when the one before it has been taken; between two, other requests have their turn."""
    for piece in pieces:
        yield piece
        await asyncio.sleep(0)


def embeddings_writer(model_id: str, encoding: Literal["float", "base64"]) -> Write:
    def write(computed: Computed, charged: dict[str, Any], request_id: str) -> Iterator[bytes]:
        del request_id
        rest = {"model": model_id, "usage": input_usage(charged), "service": charged["service"]}
        yield b'{"object":"list","data":['
        yield from embedding_items(computed, encoding)
        yield b"]," + orjson.dumps(rest)[1:]

    return write


def input_usage(charged: dict[str, Any]) -> dict[str, int]:
    """OpenAI's `usage` of what generates nothing."""
    usage = charged["usage"]
    return {"prompt_tokens": usage["prompt_tokens"], "total_tokens": usage["total_tokens"]}


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
