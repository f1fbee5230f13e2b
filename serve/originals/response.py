"""What the route of originals answers, as documented."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

_EXAMPLE: dict[str, Any] = {
    "id": "cmp_5f0c1a",
    "object": "compression.original",
    "start": 30,
    "end": 64,
    "length": 98,
    "text": "The warranty ends after two years.",
}


class OriginalSlice(BaseModel):
    """A part of a text as it was before it was compressed. Offsets count characters, which are Unicode code points."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    id: str = Field(description="The id asked for: a compression's, or a block's.")
    object: Literal["compression.original"] = Field(description="`compression.original`.")
    start: int = Field(description="Offset of the first character of `text`.")
    end: int = Field(description="Offset after its last character.")
    length: int = Field(description="Characters of the whole original.")
    text: str = Field(description="The characters from `start` to before `end`.")
