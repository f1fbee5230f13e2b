"""The compression models of this server, as requests of every kind meet them: options, bounds and receipts."""

import asyncio
import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from typing import Annotated, Any, Literal, Protocol

import orjson
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from compression.pipeline.compression_model import NO_TERMS, CompressionModel, JobTerms, Receipt
from compression.pipeline.errors import CompressionTimedOut, UnknownCompressionModel
from compression.scorers.kinds import KINDS
from serve.config.compression_models import CompressionSettingsSection, spec_of
from serve.http.request_body import RequestShape
from serve.money.held_request import MostTokens, TokenTerms
from serve.money.prompt_bound import tokens_per_byte_of

_UNKNOWN = "unknown_option"
# As other compressors call what is `target_ratio` here.
_OTHERS_WORDS = {name: "target_ratio" for name in ("ratio", "rate", "compression_ratio", "compression_rate")}
# `max_tokens`, which clients send beside messages, must not be taken for `min_tokens`: those are 0.8 alike.
_ALIKE = 0.85
_RATHER_ALIKE = 0.6
# A comparison takes microseconds, and a body may hold tens of thousands of names.
_MOST_COMPARED = 16
_LONGEST_COMPARED = 32


def refuse_unknown(given: Any, options: Collection[str]) -> None:
    """Raise `ValidationError` if an object of options has a member of another name; the first one is named."""
    for name in _others(given, options):
        meant = _meant(name, options, alike=_RATHER_ALIKE)
        if meant is None:
            there = {"options": ", ".join(options)}
            raise _refused(
                name, given, PydanticCustomError(_UNKNOWN, "unknown option; there are {options}", there)
            )
        hint = {"meant": meant}
        raise _refused(
            name, given, PydanticCustomError(_UNKNOWN, "unknown option; did you mean {meant}?", hint)
        )


def refuse_beside(given: Any, known: Collection[str], options: Collection[str]) -> None:
    """Raise `ValidationError` if a body has, beside `compression`, what belongs in it, misspelt or not. Names that are
    like no option have no effect: clients of other services send some."""
    if not isinstance(given, dict):
        return
    placed_wrong = [name for name in options if name not in known and given.get(name) is not None]
    for name in (*placed_wrong, *islice(_others(given, known), _MOST_COMPARED)):
        meant = _meant(name, options, alike=_ALIKE)
        if meant is not None:
            message = "belongs in compression, as compression.{meant}"
            raise _refused(name, given, PydanticCustomError("misplaced_option", message, {"meant": meant}))


def _others(given: Any, known: Collection[str]) -> Iterator[str]:
    """The names of an object that are not known; null counts as absent."""
    found = given.items() if isinstance(given, dict) else ()
    return (name for name, value in found if value is not None and name not in known)


def _meant(name: str, options: Collection[str], *, alike: float) -> str | None:
    if len(name) > _LONGEST_COMPARED:
        return None
    # camelCase and kebab-case are other spellings of the same name.
    written = "".join("_" + letter.lower() if letter.isupper() else letter for letter in name)
    spelt = written.replace("-", "_").strip("_")
    return next(iter(get_close_matches(_OTHERS_WORDS.get(spelt, spelt), options, 1, alike)), None)


def _refused(name: str, given: dict[str, Any], why: PydanticCustomError) -> ValidationError:
    line = InitErrorDetails(type=why, loc=(name,), input=given[name])
    return ValidationError.from_exception_data("options", [line])


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


class FlagExample(BaseModel):
    """A place in the input that a flag refers to."""

    start: int = Field(description="Offset of its first character.")
    end: int = Field(description="Offset after its last character.")
    text: str = Field(description="The characters there, truncated if long.")


class RiskFlag(BaseModel):
    """One kind of loss that the compression may have caused."""

    code: str = Field(description="The kind of loss, such as `negation_dropped`.")
    severity: Literal["info", "warning", "critical"] = Field(description="How much it matters.")
    count: int = Field(description="How often it was found.")
    examples: list[FlagExample] = Field(max_length=3, description="Up to three of the places.")


class CalibrationFields(BaseModel):
    """A calibration, by name and hash."""

    name: str = Field(description="Its name.")
    sha256: str = Field(description="The hash of its file, in hexadecimal.")


class CompressReceipt(BaseModel):
    """The tokens that went in and came out, and what may have been lost."""

    original_tokens: int = Field(description="Tokens of the input.")
    output_tokens: int = Field(description="Tokens of the output.")
    tokens_saved: int = Field(description="Their difference.")
    compression_ratio: float = Field(description="Output tokens divided by original tokens.")
    target_ratio: float | None = Field(
        description="The ratio requested, or the model's default; null if `keep` was requested."
    )
    latency_ms: Annotated[float, BeforeValidator(lambda ms: round(ms, 3))] = Field(
        description="Time that the compression took, without waiting and transport."
    )
    tokenizer: str = Field(description="The tokenizer that counted.")
    keep: float | None = Field(default=None, description="The probability requested, or null.")
    estimated_ratio: float | None = Field(
        default=None, description="The ratio that the calibration says `keep` needs; null without `keep`."
    )
    evidence_kept_probability: float | None = Field(
        default=None,
        description="The estimated probability that the evidence was kept; null if the model has no calibration.",
    )
    calibration: CalibrationFields | None = Field(
        default=None, description="The calibration behind these estimates; null if the model has none."
    )
    risk_flags: list[RiskFlag] = Field(description="Empty if no risk was found.")
    tokenizer_sha256: str = Field(
        default="", description="SHA-256 of the tokenizer's `tokenizer.json`, in hexadecimal."
    )
    source_sha256: str = Field(
        default="",
        description="SHA-256 of the input's UTF-8, in hexadecimal; empty for a sum over several inputs.",
    )
    kept_sha256: str = Field(
        default="",
        description="SHA-256 of the kept spans, `[[start,end],…]` as JSON without spaces: code points of the input, "
        "in output order.",
    )


def receipts_sha256(receipts: Iterable[Receipt]) -> str:
    """What the usage event of these compressions commits to: `[[name of the tokenizer,its hash,source,kept],…]` as JSON
    without spaces."""
    parts = [
        (each.tokenizer, each.tokenizer_sha256, each.source_sha256, each.kept_sha256) for each in receipts
    ]
    return hashlib.sha256(orjson.dumps(parts)).hexdigest()


def receipt_fields(receipt: Receipt) -> dict[str, Any]:
    """The contract's receipt. What does not apply to it is null, so that every receipt has the same fields."""
    return CompressReceipt.model_validate(receipt, from_attributes=True).model_dump()


# How many texts of one request are counted or compressed at a time: other requests need the workers too.
AT_ONCE = 4


class CountingModel(CompressionModel, Protocol):
    """A compression model that can say beforehand how many tokens its receipt will count in an input."""

    async def count_tokens(self, text: str, terms: JobTerms = NO_TERMS) -> int:
        """Raises what `compress` does, but for a `CompressionError`."""
        ...


class RunningModel(CountingModel, Protocol):
    """A compression model that may be starting."""

    async def ready(self) -> bool:
        """Say whether a replica is up, without starting one."""
        ...


@dataclass(frozen=True, slots=True)
class ServedCompressor:
    """A compression model with what a request may leave out, the input in bytes that it takes, and the most tokens that
    a byte can be in its receipts; None if that is not proven. `keeps_json`: what it leaves of JSON is JSON.
    `offers_sizes`: it can tell what a text becomes at other sizes from one scoring."""

    model: CountingModel
    default_ratio: float
    longest_input_bytes: int
    tokens_per_byte: int | None
    keeps_json: bool = True
    lowest_ratio: float = 0.0
    highest_ratio: float = 1.0
    offers_sizes: bool = True


def served_compressors(
    settings: CompressionSettingsSection, models: Mapping[str, CountingModel]
) -> dict[str, ServedCompressor]:
    """The configured models by id, in the operator's order; the first is the default."""
    return {
        model.id: ServedCompressor(
            model=models[model.id],
            default_ratio=model.ratio.default,
            longest_input_bytes=model.max_input_bytes,
            tokens_per_byte=tokens_per_byte_of(spec_of(model).tokenizer),
            keeps_json=model.fidelity == "default",
            lowest_ratio=model.ratio.min,
            highest_ratio=model.ratio.max,
            offers_sizes=not KINDS[model.kind].chooses_words,
        )
        for model in settings.models
    }


def compressor_id(models: Mapping[str, ServedCompressor], wanted: str | None) -> str:
    """The model that was asked for, or the default. Raises `UnknownCompressionModel`."""
    if wanted is None:
        return next(iter(models))
    if wanted not in models:
        raise UnknownCompressionModel(wanted, tuple(models))
    return wanted


def token_terms(
    model_id: str,
    served: ServedCompressor,
    texts: Sequence[str],
    *,
    payer: str,
    counts_against_limits: bool = True,
    deadline_s: float | None = None,
) -> TokenTerms:
    """The tokens of these texts, together. If nothing is proven of the tokenizer, a byte counts as a token until they
    are counted, which is done before anything is held; `deadline_s` bounds that, besides the model's own."""
    most = sum(len(text.encode()) for text in texts) * (served.tokens_per_byte or 1)

    async def count() -> MostTokens:
        places = asyncio.Semaphore(AT_ONCE)

        async def of(text: str) -> int:
            async with places:
                return await served.model.count_tokens(text, JobTerms(payer=payer, deadline_s=deadline_s))

        try:
            async with asyncio.timeout(deadline_s):
                counted = sum(await asyncio.gather(*map(of, texts)))
        except TimeoutError:
            raise CompressionTimedOut(f"{model_id}: not counted within {deadline_s:g} s") from None
        return MostTokens(counted, max(counted, most))

    return TokenTerms(
        model_id,
        MostTokens(most, most),
        MostTokens(1, most),
        count,
        bound_is_proven=served.tokens_per_byte is not None,
        limits_completion=False,
        counts_against_limits=counts_against_limits,
    )
