"""How small a compression's output is to be, as every request and default says it."""

from typing import Any

from pydantic import ConfigDict, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from serve.compressors.misplaced import refuse_unknown
from serve.http.request_body import RequestShape


class SizeOptions(RequestShape):
    """`target_ratio` or `keep`, or neither for the model's own ratio. An unknown option is refused: misspelt, it
    would change what is kept and charged without a word."""

    model_config = ConfigDict(extra="forbid")

    target_ratio: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Maximum of output tokens / input tokens of each text. 1 leaves it unchanged. Default: the "
        "model's. A model may have narrower bounds.",
    )
    keep: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="Instead of `target_ratio`: the minimum probability that a text's evidence is kept; the output is "
        "as small as that allows. A model without a calibration refuses it.",
    )

    @model_validator(mode="before")
    @classmethod
    def _all_are_known(cls, given: Any) -> Any:
        # Before pydantic makes an error of each of thousands.
        refuse_unknown(given, cls.model_fields)
        return given

    @field_validator("keep")
    @classmethod
    def _is_the_only_size(cls, keep: float | None, info: ValidationInfo) -> float | None:
        if keep is not None and info.data.get("target_ratio") is not None:
            raise PydanticCustomError("two_sizes", "keep cannot be given together with target_ratio")
        return keep
