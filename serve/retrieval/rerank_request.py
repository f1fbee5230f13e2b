"""The body of `POST rerank`, as Cohere's (v1 and v2), Jina's and vLLM's clients send it."""

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from models.retrieval import RetrievalJob
from serve.http.request_body import RequestShape
from serve.retrieval.served import RetrievalModels
from serve.retrieval.service import PreparedRetrieval, prepared

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
