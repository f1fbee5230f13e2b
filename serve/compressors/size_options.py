"""Options for the size of a compression's output, and refusal of an option that is misspelt or misplaced."""

from collections.abc import Collection, Iterator
from difflib import get_close_matches
from itertools import islice
from typing import Any

from pydantic import ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from serve.http.request_body import RequestShape

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
