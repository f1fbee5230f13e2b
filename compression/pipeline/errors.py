"""Errors of a compression request, named for what happened. Only `serve` knows HTTP statuses."""


class CompressionError(ValueError):
    """Base of what a caller can put right. `field` is the path of the field at fault, dots between its parts."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class EmptyInput(CompressionError):
    """There is nothing to compress."""

    def __init__(self) -> None:
        super().__init__("input", "must hold at least one character")


class InputTooLarge(CompressionError):
    """The input or the query is over what this compressor takes."""

    def __init__(self, field: str, *, size: int, limit: int, unit: str) -> None:
        super().__init__(field, f"holds {size:,} {unit}; the limit is {limit:,}")
        self.size = size
        self.limit = limit


class RatioOutOfRange(CompressionError):
    """The target ratio is not one that this compressor takes."""

    def __init__(self, ratio: float, *, lowest: float, highest: float) -> None:
        bound = f"at least {lowest:g}" if lowest > 0 else "greater than 0"
        super().__init__(
            "compression.target_ratio", f"must be {bound} and at most {highest:g}, not {ratio!r}"
        )
        self.ratio = ratio


class KeepOutOfRange(CompressionError):
    """The probability that was asked for cannot be promised."""

    def __init__(self, keep: float) -> None:
        super().__init__("compression.keep", f"must be greater than 0 and less than 1, not {keep!r}")
        self.keep = keep


class RatioAndKeepGiven(CompressionError):
    """Both a ratio and a promise were asked for; only one can decide how much is kept."""

    def __init__(self) -> None:
        super().__init__("compression.keep", "cannot be given together with target_ratio")


class NeitherRatioNorKeep(CompressionError):
    """Neither a ratio nor a promise was asked for."""

    def __init__(self) -> None:
        super().__init__("compression.target_ratio", "is missing; give it, or keep")


class NotCalibrated(CompressionError):
    """This model has no calibration, so it cannot tell what an input needs for a promise."""

    def __init__(self) -> None:
        super().__init__(
            "compression.keep", "this model has no calibration for it; give target_ratio instead"
        )


class NotText(CompressionError):
    """Half of a surrogate pair without the other half: no tokenizer and no encoding accepts it."""

    def __init__(self, field: str, position: int) -> None:
        super().__init__(
            field, f"the character at position {position} is half of a surrogate pair, which is not text"
        )
        self.position = position


class ScoresMismatch(RuntimeError):
    """A scorer gave something other than one finite number a unit: our fault, not the caller's."""


class RefusedRequest(CompressionError):
    """A refusal that crossed a process boundary, which keeps the field and the message of the `CompressionError`."""


class TextTooLong(RefusedRequest):
    """A text has more tokens than the model reads at once."""


class UnknownCompressionModel(LookupError):
    """No compression model of this id is served here."""

    def __init__(self, model_id: str, known: tuple[str, ...]) -> None:
        super().__init__(
            f"compression model {model_id!r} is not served here; choose one of: {', '.join(known)}"
        )
        self.model_id = model_id
        self.known = known


class CompressorOverloaded(RuntimeError):
    """As much is waiting for the compressor as may wait; nothing was done."""


class CompressorUnavailable(RuntimeError):
    """No replica of the compressor took the request in time."""


class CompressionTimedOut(RuntimeError):
    """The request was not done by its deadline, waiting included; its work was ended."""


class CompressorFailed(RuntimeError):
    """The compressor took the request and then died, or did not return a result."""
