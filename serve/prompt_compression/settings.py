"""What holds for one chat: the request's own options over its project's, and the model's where neither says."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from compression.pipeline.errors import RatioOutOfRange, UnknownCompressionModel
from models.errors import InvalidField
from serve.compressors.compressor import ServedCompressor, compressor_id
from serve.prompt_compression.options import OnFailure, PromptCompressionOptions, Scope

# Shorter texts are sent as they are: there is little to leave out, and each piece of it matters.
DEFAULT_MIN_TOKENS = 128
Value = TypeVar("Value")
# What a request says of its compression: options, `False` to turn its project's off, or nothing.
Asked = PromptCompressionOptions | Literal[False] | None
# Neither options nor a default: the parts that the caller has marked, and nothing else.
# Or, where no later turn is to find its beginning again, every text but the last one of the last user.
WhatIsCompressed = Scope | Literal["only_marked", "all_but_newest"]


@dataclass(frozen=True, slots=True)
class PromptCompressionSettings:
    """Either `target_ratio` or `keep` is set. `is_asked`: the request itself said which of them."""

    model_id: str
    target_ratio: float | None
    keep: float | None
    scope: WhatIsCompressed
    min_tokens: int
    refuses_on_failure: bool
    mark_gaps: bool
    holdout: float
    retain_s: int
    is_asked: bool

    def as_key(self) -> str:
        """What an output depends on, besides its text and its query."""
        return f"{self.model_id}\0{self.target_ratio}\0{self.keep}\0{self.mark_gaps}"


def settings_of(
    asked: PromptCompressionOptions | None,
    default: PromptCompressionOptions | None,
    models: Mapping[str, ServedCompressor],
) -> PromptCompressionSettings:
    """Raises `InvalidField` where the request names a model that is not served here, and `UnknownCompressionModel`
    where its project does."""
    said = [options for options in (asked, default) if options is not None]

    def first(name: str, otherwise: Value) -> Value:
        return next((value for options in said if (value := getattr(options, name)) is not None), otherwise)

    model_id = _model_id(asked, first("model", None), models)
    sized = next((one for one in said if one.target_ratio or one.keep), None)
    served = models[model_id]
    if sized is not None and sized is asked:
        _check_ratio(asked.target_ratio, served)
    scope: WhatIsCompressed = first("scope", "marked" if said else "only_marked")
    return PromptCompressionSettings(
        model_id=model_id,
        target_ratio=served.default_ratio if sized is None else sized.target_ratio,
        keep=None if sized is None else sized.keep,
        scope=scope,
        min_tokens=first("min_tokens", DEFAULT_MIN_TOKENS),
        refuses_on_failure=first("on_failure", "whole") == _REFUSE,
        mark_gaps=first("mark_gaps", False),
        holdout=_holdout(asked, default),
        retain_s=first("retain_s", 0),
        is_asked=sized is not None and sized is asked,
    )


def _holdout(asked: PromptCompressionOptions | None, default: PromptCompressionOptions | None) -> float:
    """The project's, where it has one: no client takes a conversation out of its comparison."""
    said = [options.holdout for options in (default, asked) if options is not None]
    return next((share for share in said if share is not None), 0.0)


def _check_ratio(ratio: float | None, served: ServedCompressor) -> None:
    if ratio is not None and not served.lowest_ratio <= ratio <= served.highest_ratio:
        error = RatioOutOfRange(ratio, lowest=served.lowest_ratio, highest=served.highest_ratio)
        raise InvalidField(("compression", "target_ratio"), error.message)


_REFUSE: OnFailure = "refuse"


def _model_id(
    asked: PromptCompressionOptions | None, wanted: str | None, models: Mapping[str, ServedCompressor]
) -> str:
    try:
        return compressor_id(models, wanted)
    except UnknownCompressionModel as error:
        if asked is None:
            raise
        if asked.model is None:
            # Its project's is gone; what it asks for itself does not depend on that.
            return compressor_id(models, None)
        raise InvalidField(("compression", "model"), str(error), kind="unknown_model") from error
