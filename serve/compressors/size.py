"""How small a compression's output is to be, as every request and default says it."""

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from serve.http.body import RequestShape


class SizeOptions(RequestShape):
    """`target_ratio` or `keep`, or neither for the model's own ratio."""

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

    @field_validator("keep")
    @classmethod
    def _is_the_only_size(cls, keep: float | None, info: ValidationInfo) -> float | None:
        if keep is not None and info.data.get("target_ratio") is not None:
            raise PydanticCustomError("two_sizes", "keep cannot be given together with target_ratio")
        return keep
