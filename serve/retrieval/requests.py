"""The bodies of embeddings, rerank and score requests and of their replies, in the shapes that clients know."""

import base64
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import numpy as np
import orjson
from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from models.embedding_backends import Computed, RetrievalJob, Text
from models.errors import InvalidField
from serve.http.request_body import RequestShape
from serve.retrieval.service import PreparedRetrieval, RetrievalModels, Write, prepared

MOST_INPUTS = 2048
# Above those of any model. A number of more than 64 bits could not be sent to a worker.
MOST_DIMENSIONS = 65_536
TokenId = Annotated[int, Field(ge=0, lt=2**32)]
# The first bad token refuses the list: a union would collect an issue for each of a million.
Tokens = Annotated[list[TokenId], Field(min_length=1, fail_fast=True)]
Texts = Annotated[list[str], Field(fail_fast=True)]
TokenLists = Annotated[list[Tokens], Field(fail_fast=True)]


class EmbeddingRequest(RequestShape):
    model: str | None = Field(default=None, description="An embedding model; default: the first.")
    input: str | Texts | Tokens | TokenLists = Field(
        description="A text, its tokens, or a list of at most 2048 of either."
    )
    encoding_format: Literal["float", "base64"] = Field(
        default="float", description="How a vector is written."
    )
    dimensions: int | None = Field(
        default=None,
        ge=1,
        le=MOST_DIMENSIONS,
        description="Length of the vectors, of a model that can shorten them; default: its own.",
    )
    user: str | None = Field(default=None, description="The person whom it is for.")

    @field_validator("input", mode="before")
    @classmethod
    def _one_kind(cls, given: object) -> object:
        """One look at what it is, before a union tries every item as every kind, and tells of each."""
        items = given if isinstance(given, list) else [given]
        if not items or "" in items:
            raise PydanticCustomError("empty_input", "input must not be empty, nor hold an empty text")
        kinds = {type(item) for item in items}
        allowed = ({str}, {int}, {list}) if isinstance(given, list) else ({str},)
        if kinds not in allowed:
            raise PydanticCustomError(
                "input_kind",
                "input must be a string, an array of strings, an array of tokens, or an array of arrays of tokens",
            )
        if kinds != {int} and len(items) > MOST_INPUTS:
            raise PydanticCustomError(
                "too_many_inputs", f"input must hold at most {MOST_INPUTS} items, not {len(items)}"
            )
        return given

    @property
    def texts(self) -> tuple[Text, ...]:
        if isinstance(self.input, str):
            return (self.input,)
        if isinstance(self.input[0], int):
            return (tuple(self.input),)
        return tuple(text if isinstance(text, str) else tuple(text) for text in self.input)


def prepare_embeddings(models: RetrievalModels, body: EmbeddingRequest) -> PreparedRetrieval:
    """Raises `UnknownModel` or `InvalidField`."""
    served = models.get("embedding", body.model)
    if body.dimensions is not None and not served.shortens:
        raise InvalidField(("dimensions",), f"{served.id} has vectors of one length; leave dimensions out")
    job = RetrievalJob("embed", body.texts, served.context_length, dimensions=body.dimensions)
    return prepared(served, job, "embeddings")


MOST_DOCUMENTS = 1000
# Above any context and any number of documents: a client that wants all sends a large number.
MOST = 2**31 - 1


class TextDocument(RequestShape):
    text: str


class RerankRequest(RequestShape):
    model: str | None = Field(default=None, description="A rerank model; default: the first.")
    query: str = Field(min_length=1, description="What the documents are compared with.")
    documents: list[str | TextDocument] = Field(
        min_length=1, fail_fast=True, description="At most 1000 texts, or objects with a `text`."
    )
    top_n: int | None = Field(
        default=None, ge=1, le=MOST, description="How many results are returned; default: all."
    )
    top_k: int | None = Field(default=None, ge=1, le=MOST, description="Another name of `top_n`.")
    return_documents: bool = Field(default=False, description="Whether each result has its text.")
    max_tokens_per_doc: int | None = Field(
        default=None,
        ge=1,
        le=MOST,
        description="Tokens of a document that are read; default: the model's context.",
    )

    @field_validator("documents", mode="before")
    @classmethod
    def _not_too_many(cls, given: object) -> object:
        if isinstance(given, list) and len(given) > MOST_DOCUMENTS:
            raise PydanticCustomError(
                "too_many_documents",
                f"documents must hold at most {MOST_DOCUMENTS} items, not {len(given)}",
            )
        return given

    @field_validator("top_k")
    @classmethod
    def _same_as_top_n(cls, given: int | None, info: ValidationInfo) -> int | None:
        top_n = info.data.get("top_n")
        if given is not None and top_n is not None and given != top_n:
            raise PydanticCustomError(
                "conflict", f"top_k is another name of top_n, which is {top_n}: give one"
            )
        return given

    @property
    def most_results(self) -> int | None:
        """None: all."""
        return self.top_n if self.top_n is not None else self.top_k

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(found if isinstance(found, str) else found.text for found in self.documents)


def prepare_rerank(models: RetrievalModels, body: RerankRequest) -> PreparedRetrieval:
    """A document that is too long is cut, as Cohere does it. Raises `UnknownModel` or `InvalidField`."""
    served = models.get("rerank", body.model)
    cut = min(body.max_tokens_per_doc or served.context_length, served.context_length)
    job = RetrievalJob("relate", body.texts, served.context_length, queries=(body.query,), cut=cut)
    return prepared(served, job, "rerank")


MOST_PAIRS = 1000
_NAMES = {"queries": "text_1", "documents": "text_2", "items": "text_2"}


class ScoreRequest(RequestShape):
    model: str | None = Field(default=None, description="A rerank model; default: the first.")
    text_1: str | list[str] = Field(description="One text for all of `text_2`, or as many. Also: `queries`.")
    text_2: str | list[str] = Field(description="At most 1000 texts. Also: `documents`, `items`.")

    @model_validator(mode="before")
    @classmethod
    def _either_name(cls, body: Any) -> Any:
        if not isinstance(body, dict):
            return body
        renamed = {_NAMES[name]: body[name] for name in _NAMES if body.get(name) is not None and name in body}
        return {**body, **{name: value for name, value in renamed.items() if body.get(name) is None}}

    @field_validator("text_1", "text_2", mode="before")
    @classmethod
    def _some(cls, given: object) -> object:
        if given in ("", []):
            raise PydanticCustomError("empty_text", "must not be empty")
        if isinstance(given, list) and len(given) > MOST_PAIRS:
            raise PydanticCustomError(
                "too_many_texts", f"must hold at most {MOST_PAIRS} items, not {len(given)}"
            )
        return given


def prepare_scores(models: RetrievalModels, body: ScoreRequest) -> PreparedRetrieval:
    """Raises `UnknownModel`, or `InvalidField` where the two sides do not pair."""
    served = models.get("rerank", body.model)
    first, second = _several(body.text_1), _several(body.text_2)
    if len(first) not in (1, len(second)):
        message = f"holds {len(first)} texts; with {len(second)} in text_2 it must hold 1 or as many"
        raise InvalidField(("text_1",), message)
    job = RetrievalJob("relate", second, served.context_length, queries=first)
    return prepared(served, job, "score", ("query", "text_1"), ("documents", "text_2"))


def _several(given: str | list[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


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
