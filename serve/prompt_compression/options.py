"""The options of compression inside chat: a request's own, its project's default, and what holds of both."""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from billing.preservation.size_control import LARGEST
from billing.preservation.sizes import Bound, Measure
from compression.pipeline.errors import RatioOutOfRange, UnknownCompressionModel
from models.errors import InvalidField
from serve.compressors.compressor import ServedCompressor, SizeOptions, compressor_id, refuse_unknown
from serve.config.compression_models import CompressionModelSettings, CompressionSettingsSection, spec_of
from serve.http.request_body import InvalidBody, Issue, parse_body
from serve.originals.originals import MAX_RETAIN_S

MAX_MIN_TOKENS = 1_000_000

Scope = Literal["marked", "all"]
OnFailure = Literal["whole", "refuse"]


class PromptCompressionOptions(SizeOptions):
    """Options of compressing the long parts of a chat's prompt. An absent option is as in the project's default."""

    model: str | None = Field(
        default=None,
        max_length=256,
        description="A compression model's id. Default: this server's first.",
    )
    scope: Scope | None = Field(
        default=None,
        description="`marked`, the default: tool results and text parts with `compress: true`. `all`: also every text "
        "of a user message but its last.",
    )
    min_tokens: int | None = Field(
        default=None,
        ge=1,
        le=MAX_MIN_TOKENS,
        description="Parts with fewer tokens than this are sent as they are.",
    )
    on_failure: OnFailure | None = Field(
        default=None,
        description="What to do if the compression model fails: `whole`, the default, sends the prompt uncompressed; "
        "`refuse` answers 503.",
    )
    mark_gaps: bool | None = Field(
        default=None,
        description="True puts `[…]` where something was left out of a part between two kept pieces; the marks are "
        "counted. False is the default.",
    )
    holdout: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Share of conversations that are sent uncompressed, to measure the saving against. Default: 0.",
    )
    verify: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Share of compressed chats whose reply the model scores again under the whole prompt, in the "
        "background and for nothing, to measure what compression changed. Default: 0.",
    )
    retain_s: int | None = Field(
        default=None,
        ge=0,
        le=MAX_RETAIN_S,
        description="Seconds for which the originals of compressed parts can be fetched again. Default: 0, not at all.",
    )


class WithinAgreement(BaseModel):
    """A bound of the share of tokens for which compression makes another one the likeliest."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    agreement: float = Field(gt=0, lt=1)

    @model_validator(mode="before")
    @classmethod
    def _all_are_known(cls, given: Any) -> Any:
        refuse_unknown(given, cls.model_fields)
        return given


def _measure_of(within: object) -> Measure:
    return "agreement" if isinstance(within, dict | WithinAgreement) else "nats"


Within = Annotated[
    Annotated[float, Field(gt=0, le=LARGEST), Tag("nats")] | Annotated[WithinAgreement, Tag("agreement")],
    Discriminator(_measure_of),
]


class ProjectCompression(PromptCompressionOptions):
    """A project's default."""

    model_config = ConfigDict(frozen=True)

    within: Within | None = Field(
        default=None,
        description="Instead of `target_ratio` or `keep`: the most that compression may change in replies, in the mean "
        'over chats, in nats a token; or `{"agreement": 0.02}`, the share of tokens for which another one becomes '
        "the likeliest. Samples (`verify`) decide the size.",
    )

    @model_validator(mode="after")
    def _has_one_size(self) -> Self:
        if self.within is None:
            return self
        if self.target_ratio is not None or self.keep is not None:
            raise PydanticCustomError(
                "two_sizes", "within cannot be given together with target_ratio or keep"
            )
        if self.verify == 0:
            raise PydanticCustomError("no_samples", "within needs samples: verify must be above 0")
        return self

    @property
    def bound(self) -> Bound | None:
        if isinstance(self.within, WithinAgreement):
            return Bound("agreement", self.within.agreement)
        return None if self.within is None else Bound("nats", self.within)


# More different defaults than a server's projects have; each takes about a kilobyte.
REMEMBERED = 4096

logger = logging.getLogger("pith.compression")


def default_of(compression: str | None) -> ProjectCompression | None:
    """The compression of the project's chats unless a request says otherwise; None: none.

    A default that cannot be read, since another release wrote it or it was changed by hand, also gives None: nothing
    is compressed in a way that was not asked for, and no chat fails. It is logged once by each process, and
    `pith project list` marks it.
    """
    return None if compression is None else _read(compression)


def stored_default(options: ProjectCompression) -> str:
    """The same JSON for the same options, so that the audit log shows only real changes."""
    given = options.model_dump(exclude_none=True)
    return json.dumps(given, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


@lru_cache(maxsize=REMEMBERED)
def _read(compression: str) -> ProjectCompression | None:
    try:
        return ProjectCompression.model_validate_json(compression)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        reasons = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in found)
        logger.warning("a project's compression cannot be read and is off: %s (%s)", compression, reasons)
        return None


# Of chats whose size samples decide, where the project says no other share.
DEFAULT_VERIFY = 0.05
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
    """Either `target_ratio` or `keep` is set, or `within`, until the chat has its size, which is a `keep`. `is_asked`:
    the request itself said which of them."""

    model_id: str
    target_ratio: float | None
    keep: float | None
    scope: WhatIsCompressed
    min_tokens: int
    refuses_on_failure: bool
    mark_gaps: bool
    holdout: float
    verify: float
    retain_s: int
    is_asked: bool
    within: Bound | None = None

    @property
    def is_whole(self) -> bool:
        """True if the size that the bound leaves this chat is the whole prompt."""
        return self.within is not None and self.keep is None

    def of_size(self, keep: float | None) -> Self:
        """With the size of one chat."""
        return replace(self, keep=keep)

    def as_key(self) -> str:
        """A key of all that an output depends on, besides its text and its query."""
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
    sized = next((one for one in said if one.target_ratio or one.keep or _bound_of(one)), None)
    within = None if sized is None else _bound_of(sized)
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
        holdout=_projects_share("holdout", asked, default),
        verify=_projects_share("verify", asked, default) or (DEFAULT_VERIFY if within else 0.0),
        retain_s=first("retain_s", 0),
        is_asked=sized is not None and sized is asked,
        within=within,
    )


def _bound_of(options: PromptCompressionOptions) -> Bound | None:
    return options.bound if isinstance(options, ProjectCompression) else None


def _projects_share(
    name: Literal["holdout", "verify"],
    asked: PromptCompressionOptions | None,
    default: PromptCompressionOptions | None,
) -> float:
    """The project's, where it has one: no client takes a conversation out of what is measured."""
    said = [getattr(options, name) for options in (default, asked) if options is not None]
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


class BadDefault(ValueError):
    """The message says which field is wrong, and why."""


def checked_default(text: str, settings: CompressionSettingsSection) -> ProjectCompression:
    """A default that an operator wrote as JSON, checked as a request's options are and against the models here.

    Raises `BadDefault`.
    """
    try:
        options = parse_body(text.encode(errors="surrogateescape"), None, ProjectCompression)
    except InvalidBody as error:
        raise BadDefault("; ".join(map(_described, error.issues))) from None
    misfit = _misfit(options, settings)
    if misfit is not None:
        raise BadDefault(misfit)
    return options


def problem_of(compression: str | None, settings: CompressionSettingsSection) -> str | None:
    """Why a stored default has no effect here; None if it has one, or if there is no default."""
    if compression is None:
        return None
    options = default_of(compression)
    return "cannot be read by this version" if options is None else _misfit(options, settings)


def _misfit(options: ProjectCompression, settings: CompressionSettingsSection) -> str | None:
    models = {model.id: model for model in settings.models}
    if not models:
        return "model: this configuration has no compression models"
    if options.model is not None and options.model not in models:
        return f"model: there is no {options.model!r}, only {', '.join(models)}"
    model = settings.models[0] if options.model is None else models[options.model]
    ratio, bounds = options.target_ratio, model.ratio
    if ratio is not None and not bounds.min <= ratio <= bounds.max:
        return f"target_ratio: {model.id} takes {bounds.min:g} to {bounds.max:g}, not {ratio:g}"
    if options.keep is not None and not _is_calibrated(model):
        return f"keep: {model.id} has no calibration for it; give target_ratio instead"
    if options.within is not None and not _is_calibrated(model):
        return f"within: {model.id} has no calibration, which its sizes need; give target_ratio instead"
    if options.within is not None and not settings.chat.verify_engine_share:
        return "within: compression.chat.verify_engine_share is 0, so there are no samples to decide the size"
    longest = settings.retention.max_s
    if options.retain_s is not None and options.retain_s > longest:
        return f"retain_s: this server keeps originals for {longest} seconds at the most"
    return None


def _is_calibrated(model: CompressionModelSettings) -> bool:
    from compression.pipeline.pipeline import calibration_of
    from compression.scorers.kinds import KINDS

    return not KINDS[model.kind].chooses_words and calibration_of(spec_of(model)) is not None


def _described(issue: Issue) -> str:
    path = [str(step) for step in issue.loc[1:] if isinstance(step, str)]
    return ": ".join([*path, issue.msg])
