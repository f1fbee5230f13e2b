"""The body of `POST score`, as vLLM's clients send it: under either of the names that its two sides have."""

from typing import Any

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from models.errors import InvalidField
from models.retrieval import RetrievalJob
from serve.http.request_body import RequestShape
from serve.retrieval.served import RetrievalModels
from serve.retrieval.service import PreparedRetrieval, prepared

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
