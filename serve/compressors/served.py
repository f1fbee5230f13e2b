"""A compression model with the facts that the service needs before it calls the model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from compression.pipeline.errors import UnknownCompressionModel
from compression.pipeline.served import NO_TERMS, CompressionModel, JobTerms
from compression.scorers.kinds import KINDS
from serve.config.compression_models import CompressionSettingsSection, spec_of
from serve.money.tokenizer_growth import tokens_per_byte_of


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
