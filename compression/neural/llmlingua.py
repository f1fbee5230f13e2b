"""`fidelity: llmlingua2`: the words that `PromptCompressor` of the library llmlingua keeps, as slices of the source.

The library is used as it is, and is installed by whoever wants it beside ours. It ignores the query and cuts any text.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from compression.choosing.budget import thin_out
from compression.neural.batching import CheckpointRefused, LLMLinguaUnavailable
from compression.neural.checkpoints import find_checkpoint, read_json
from compression.neural.models import network_errors_translated, steered
from compression.neural.networks import Placement
from compression.pipeline.compression_model import CompressionRequest, CompressionResult
from compression.pipeline.errors import RefusedRequest
from compression.pipeline.pipeline import Pipeline
from compression.scorers.lexical import Scorer
from compression.source.units import Slice

# The library tells the two families of its checkpoints apart by these names, in the path of a checkpoint.
_NAMES = {"bert": "bert-base-multilingual-cased", "xlm-roberta": "xlm-roberta-large"}
_WORD, _LABEL = "\x1f", "\x1e"
# Characters in which a word is looked for: more after each that is not found, as tokenizers change or lose some.
_REACH = 1024
_LOOKS = 16
_TRIES = 8


class LLMLingua2:
    """A `PromptCompressor`, for one text at a time."""

    def __init__(self, compressor: Any) -> None:
        self._compressor = compressor

    @classmethod
    def load(cls, checkpoint: str, placement: Placement) -> LLMLingua2:
        """Raises `CheckpointRefused`, and `LLMLinguaUnavailable` without the library or the file of its encoding."""
        folder = find_checkpoint(checkpoint)
        kind = str(read_json(folder / "config.json").get("model_type"))
        if kind not in _NAMES:
            raise CheckpointRefused(str(folder), f"llmlingua knows {' and '.join(_NAMES)}, not {kind}")
        placement.bound_process()
        made, settings = _prompt_compressor(), {"trust_remote_code": False}
        try:
            compressor = made(
                str(folder), device_map=placement.device, use_llmlingua2=True, model_config=settings
            )
        except (OSError, ValueError, KeyError) as error:
            raise CheckpointRefused(str(folder), f"llmlingua does not load it: {error}") from error
        if compressor.model.float().config.num_labels != 2:
            raise CheckpointRefused(str(folder), "has other labels a token than drop and keep")
        if _NAMES[kind] not in str(folder):
            compressor.model_name = _NAMES[kind]
        return cls(compressor)

    def kept(self, source: str, rate: float) -> list[Slice]:
        """The kept words in order. Raises `RefusedRequest` for a text that the library fails on."""
        try:
            found: str = self._compressor.compress_prompt_llmlingua2(
                [source], rate=rate, return_word_label=True, word_sep=_WORD, label_sep=_LABEL
            )["fn_labeled_original_prompt"]
        except IndexError:
            # Its tokenizer made no word of a chunk. An empty output is flagged.
            return []
        except ValueError as error:
            raise RefusedRequest("input", f"llmlingua does not take it: {error}") from error
        return _places(source, found.split(_WORD))


def _prompt_compressor() -> Any:
    try:
        import tiktoken
        from llmlingua import PromptCompressor
    except ImportError as error:
        raise LLMLinguaUnavailable(
            f"fidelity llmlingua2 runs the library llmlingua, which is not installed: {error}"
        ) from error
    try:
        tiktoken.encoding_for_model("gpt-3.5-turbo")
    except Exception as error:  # tiktoken lets through whatever its download raised
        raise LLMLinguaUnavailable(
            "LLMLingua weighs words by tokens of gpt-3.5-turbo, and tiktoken cannot load that encoding "
            f"(set TIKTOKEN_CACHE_DIR to a folder that holds it): {error}"
        ) from error
    return PromptCompressor


def _places(source: str, labelled: Sequence[str]) -> list[Slice]:
    """Where the kept ones of `labelled` words are, which are in the source's order. The work is bounded."""
    found = [
        (word, label == "1") for word, _, label in (entry.rpartition(_LABEL) for entry in labelled) if word
    ]
    spans: list[Slice] = []
    at, reach, left = 0, _REACH, _LOOKS * len(source)
    for (word, is_kept), (after, _) in zip_longest(found, found[1:], fillvalue=("", False)):
        start = _next_place(source, word, after, Slice(at, at + reach))
        if start >= 0:
            at, reach = start + len(word), _REACH
            if is_kept:
                spans.append(Slice(start, at))
        else:
            left -= reach
            reach = 8 * reach if left > 0 else _REACH
    return spans


def _next_place(source: str, word: str, after: str, within: Slice) -> int:
    """The word right here; or further on, since tokenizers change and lose words, where `after` follows it. Else -1."""
    start = source.find(word, *within)
    if not source[within.start : max(start, within.start)].strip():
        return start
    for _ in range(_TRIES):
        end = start + len(word)
        if start < 0 or source[end : end + _REACH].lstrip().startswith(after):
            break
        start = source.find(word, end, within.end)
    else:
        return -1
    return start


class LLMLinguaCompressor:
    """Keeps the words that LLMLingua-2 keeps; where they exceed the budget, those of the worst units go."""

    def __init__(self, pipeline: Pipeline, scorer: Scorer, original: LLMLingua2) -> None:
        self._pipeline = pipeline
        self._scorer = scorer
        self._original = original

    def compress(self, request: CompressionRequest) -> CompressionResult:
        prepared = self._pipeline.prepare(request)
        if not prepared.needs_scores:
            return self._pipeline.finish(prepared, ())
        with network_errors_translated():
            words = self._original.kept(request.input, prepared.target_ratio)
        scores, choice = steered(prepared, self._scorer)
        spaced = _with_space_before(prepared.text.source, words)
        slices = thin_out(choice, spaced, prepared.budget, self._pipeline.counter)
        return self._pipeline.finish_slices(prepared, scores, slices)


def _with_space_before(source: str, spans: Sequence[Slice]) -> list[Slice]:
    """Each span with the one white space before it, but for the first."""
    return [
        Slice(start - 1, end)
        if at and start > spans[at - 1].end and source[start - 1].isspace()
        else Slice(start, end)
        for at, (start, end) in enumerate(spans)
    ]
