"""The body of `POST embeddings`, as OpenAI's clients send it."""

from typing import Annotated, Literal

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from models.errors import InvalidField
from models.retrieval import RetrievalJob, Text
from serve.http.request_body import RequestShape
from serve.retrieval.served import RetrievalModels
from serve.retrieval.service import PreparedRetrieval, prepared

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
    user: str | None = Field(default=None, description="Taken, and not used.")

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
