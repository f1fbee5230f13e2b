"""An embedding or rerank model with the facts that the service needs before it calls the model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from models.errors import UnknownModel
from models.retrieval import RetrievalKind, RetrievalModel
from serve.config.compression_models import CompressionModelSettings, spec_of
from serve.config.retrieval_models import RetrievalModelSettings, host_of
from serve.money.tokenizer_growth import tokens_per_byte_of


@dataclass(frozen=True, slots=True)
class ServedRetrieval:
    """`context_length`: tokens of one text at most. `tokens_per_byte`: the most that a byte of a text can be; None
    where nothing is proven. `shortens`: whether its vectors may be cut to fewer dimensions."""

    id: str
    name: str
    kind: RetrievalKind
    model: RetrievalModel
    context_length: int
    tokens_per_byte: int | None
    shortens: bool
    # Of all texts of one request: they are counted before anything else bounds them.
    longest_bytes: int


@dataclass(frozen=True, slots=True)
class RetrievalModels:
    """All of a server's, in the operator's order."""

    models: tuple[ServedRetrieval, ...]

    def get(self, kind: RetrievalKind, wanted: str | None) -> ServedRetrieval:
        """The model that was asked for, or the first of its kind. Raises `UnknownModel`."""
        found = [model for model in self.models if model.kind == kind]
        for model in found:
            if wanted in (None, model.id):
                return model
        raise UnknownModel(wanted or "", tuple(model.id for model in found))


def served_models(
    settings: Sequence[RetrievalModelSettings],
    compressors: Sequence[CompressionModelSettings],
    models: Mapping[str, RetrievalModel],
) -> RetrievalModels:
    """Those of the configuration that run."""
    return RetrievalModels(
        tuple(
            ServedRetrieval(
                id=model.id,
                name=model.name,
                kind=model.kind,
                model=models[model.id],
                context_length=model.context_length,
                tokens_per_byte=_tokens_per_byte(host),
                shortens=model.matryoshka,
                longest_bytes=(host or model).max_input_bytes,
            )
            for model, host in ((model, host_of(model, compressors)) for model in settings)
            if model.id in models
        )
    )


def _tokens_per_byte(host: CompressionModelSettings | None) -> int | None:
    """Of a model of its own process nothing is proven here: its tokenizer may be elsewhere, and adds tokens."""
    return None if host is None else tokens_per_byte_of(spec_of(host).tokenizer)
