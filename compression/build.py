"""Builds a compression model from its spec. Only the neural kinds import torch, and only when one is built."""

from collections.abc import Callable, Sequence
from pathlib import Path

from compression.pipeline.compression_model import BuiltModel, LocalModel
from compression.pipeline.pipeline import Compressor, pipeline_of
from compression.pipeline.spec import ModelSpec
from compression.scorers.kinds import KINDS
from compression.scorers.lexical import Scorer
from compression.source.token_counter import TokenCounter, TokenizerCounter
from compression.source.units import Segmentation


class TokenizerUnavailable(ValueError):
    """The tokenizer for receipts cannot be found or read."""

    def __init__(self, tokenizer: str, reason: str) -> None:
        super().__init__(f"tokenizer {tokenizer!r}: {reason}")
        self.tokenizer = tokenizer


def build_model(spec: ModelSpec) -> BuiltModel:
    """Load what the spec names. Slow for neural kinds: seconds, and a download where it names a hub repository.

    Raises `TokenizerUnavailable`; `FileNotFoundError` and `BadWeights` for the lexical weights; `BadCalibration`;
    for neural kinds `compression.neural.batching.CheckpointRefused` and `LLMLinguaUnavailable`.
    """
    counter = load_counter(spec.tokenizer, name=spec.tokenizer_name, revision=spec.tokenizer_revision)
    if KINDS[spec.kind].has_network:
        # torch takes seconds to import, and many servers never need it.
        from compression.neural.build import build_neural_model

        return build_neural_model(spec, counter)
    return LocalModel(plain_compressor(spec, counter), max_waiting=spec.max_waiting)


def plain_compressor(spec: ModelSpec, counter: TokenCounter, scorer: Scorer | None = None) -> Compressor:
    """A kind without a network, with a scorer that is loaded already or one of its own. Raises `FileNotFoundError`,
    `BadWeights` and `BadCalibration`."""
    return Compressor(scorer or plain_scorer(spec), pipeline_of(spec, counter))


def plain_scorer(spec: ModelSpec) -> Scorer:
    """The scorer of a kind without a network. Raises `FileNotFoundError` and `BadWeights`."""
    scorer: Scorer = KINDS[spec.kind].maker()()
    return scorer


def build_scoring(spec: ModelSpec) -> Callable[[str, Segmentation], Sequence[float]]:
    """The scoring of units for a query in the model that the spec names, run here and now.

    Raises what `build_model` does; `ValueError` for a token classifier, which scores words.
    """
    if KINDS[spec.kind].chooses_words:
        raise ValueError(f"{spec.id}: a token classifier selects words, so it cannot be calibrated")
    if not KINDS[spec.kind].has_network:
        return plain_scorer(spec).score
    from compression.neural.build import build_neural_scoring

    return build_neural_scoring(spec)


def load_counter(tokenizer: str, *, name: str, revision: str | None = None) -> TokenizerCounter:
    """From a `tokenizer.json`, a folder that holds one, or a repository of the hub. Raises `TokenizerUnavailable`."""
    path = Path(tokenizer).expanduser()
    if not path.exists():
        path = _from_hub(tokenizer, revision)
    try:
        return TokenizerCounter.from_file(path, name=name)
    except FileNotFoundError as error:
        raise TokenizerUnavailable(tokenizer, "the folder holds no tokenizer.json") from error
    except Exception as error:  # tokenizers raises bare Exception for a file that it cannot read
        raise TokenizerUnavailable(tokenizer, f"cannot be read: {error}") from error


def _from_hub(repository: str, revision: str | None) -> Path:
    # Only a tokenizer that is not on this disk needs the hub's client.
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(hf_hub_download(repository, "tokenizer.json", revision=revision))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = " ".join(str(error).split())
        raise TokenizerUnavailable(
            repository, f"no such path, and the hub did not provide it: {reason}"
        ) from error
