"""The very keep mask of `llmlingua.PromptCompressor` 0.2.2 with `use_llmlingua2=True`, its faults included.

For results that were published with it. Repeated here, and mended in `token_classifier`: the query is ignored; the
threshold is a percentile within each chunk of some 510 tokens; BERT's names of special tokens are used whatever the
model is; unknown words vanish; a chunk is detokenized and tokenized again, and cut at 512 without a word about it; at
rate 1 it splits into words in another way. Source: microsoft/LLMLingua, `llmlingua/prompt_compressor.py`, `utils.py`.
Not repeated: forced tokens and filtering of whole contexts, and what a literal `[NEW0]` in the text does.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from compression.neural.checkpoints import TextTokenizer, Tokens, find_checkpoint, read_json
from compression.neural.networks import Placement, TokenClassifierNetwork
from compression.neural.windows import Floats, Job, TokenCounterUnavailable, Window, run_job
from compression.neural.words import Span

Family = Literal["bert", "xlm-roberta"]
CountWord = Callable[[str], int]
LONGEST = 512
BATCH = 50
CHUNK_ENDS = frozenset({".", "\n"})
# Unpadded and padded passes differ by some 1e-7. Where words lie this near the threshold, only its own batches tell.
NEAR = 1e-5
_WORD_AT_RATE_1 = re.compile(r'\b\w+\b|[<>=/!@#$%^&*()?":{}|\\`~;_+-]')


@dataclass(frozen=True, slots=True)
class KeepMask:
    """Its words in order and which it keeps; `spans` are their places in the source, None where it has none."""

    words: tuple[str, ...]
    kept: tuple[bool, ...]
    spans: tuple[Span | None, ...]


@dataclass(frozen=True, slots=True)
class _Chunk:
    window: Window
    pieces: tuple[str, ...]
    offsets: tuple[Span, ...] | None
    start: int
    end: int


class LLMLingua2:
    """Decides as PromptCompressor does. `count_word` counts a word's tokens as gpt-3.5-turbo's tokenizer does."""

    def __init__(
        self, network: TokenClassifierNetwork, tokenizer: TextTokenizer, family: Family, count_word: CountWord
    ) -> None:
        self.network = network
        self.tokenizer = tokenizer
        self.family = family
        self._count_word = count_word
        self._special = frozenset(v for k, v in tokenizer.special.items() if k != "additional_special_tokens")

    @classmethod
    def load(
        cls, checkpoint: str, placement: Placement, *, count_word: CountWord | None = None
    ) -> LLMLingua2:
        """Like PromptCompressor it goes by the checkpoint's name; by its model type where the name tells nothing."""
        folder = find_checkpoint(checkpoint)
        tokenizer = TextTokenizer.load(folder)
        network = TokenClassifierNetwork.load(folder, placement, tokenizer.pad_id)
        family = _family(checkpoint, str(read_json(folder / "config.json").get("model_type")))
        return cls(network, tokenizer, family, count_word or gpt35_counter())

    def mask(self, source: str, rate: float) -> KeepMask:
        """Which words PromptCompressor keeps of `source`. In fp32 equal to it word for word."""
        if rate >= 1.0:
            return self._at_rate_1(source)
        chunks = self._chunks(source)
        outputs = run_job(self.network, Job(tuple(c.window for c in chunks), list), LONGEST * 8)
        reduce = max(0, 1 - rate)
        words = [self._words(chunk, kept) for chunk, kept in zip(chunks, outputs, strict=True)]
        if any(self._is_near(chunk_words, reduce) for chunk_words in words):
            exact = self._as_padded([chunk.window for chunk in chunks])
            words = [self._words(chunk, kept) for chunk, kept in zip(chunks, exact, strict=True)]
        return self._mask(source, chunks, words, reduce)

    def job(self, source: str, rate: float) -> Job[KeepMask]:
        """`mask` by unpadded windows alone: to be batched with others; words within 1e-5 of a threshold may differ."""
        chunks = self._chunks(source) if rate < 1.0 else []

        def finish(outputs: Sequence[Floats]) -> KeepMask:
            if rate >= 1.0:
                return self._at_rate_1(source)
            words = [self._words(chunk, kept) for chunk, kept in zip(chunks, outputs, strict=True)]
            return self._mask(source, chunks, words, max(0, 1 - rate))

        return Job(tuple(chunk.window for chunk in chunks), finish)

    def _ranges(self, tokens: Tokens) -> list[Span]:
        """Its chunks as half-open ranges of tokens: up to 511, so that some are cut once special tokens are added."""
        ranges, start, room = [], 0, LONGEST - 2
        while start < len(tokens):
            end = start + room
            if end > len(tokens) - 1:
                ranges.append((start, len(tokens)))
                break
            end = next((at for at in range(end, start, -1) if tokens.pieces[at] in CHUNK_ENDS), end)
            ranges.append((start, end + 1))
            start = end + 1
        return ranges

    def _texts(self, tokens: Tokens, ranges: Sequence[Span]) -> list[str]:
        return [self.tokenizer.backend.decoder.decode(list(tokens.pieces[slice(*found)])) for found in ranges]

    def _chunks(self, source: str) -> list[_Chunk]:
        tokens = self.tokenizer.tokens(source)
        ranges = self._ranges(tokens)
        chunks = []
        for (first, last), again in zip(
            ranges, self.tokenizer.many_tokens(self._texts(tokens, ranges)), strict=True
        ):
            ids = (self._named("[CLS]"), *again.ids, self._named("[SEP]"))[:LONGEST]
            pieces = tuple(self.tokenizer.backend.id_to_token(token) or "" for token in ids)
            offsets = tokens.offsets[first:last] if again.pieces == tokens.pieces[first:last] else None
            start, end = tokens.offsets[first][0], tokens.offsets[last - 1][1]
            chunks.append(_Chunk(Window(ids), pieces, offsets, start, end))
        return chunks

    def _named(self, token: str) -> int:
        """The id of a token of BERT's, which another model may not have: then it is the unknown one."""
        found = self.tokenizer.backend.token_to_id(token)
        found = self.tokenizer.unknown_id if found is None else found
        return 0 if found is None else found

    def _as_padded(self, windows: Sequence[Window]) -> list[Floats]:
        """As PromptCompressor runs them: in order, fifty at a time, each padded to 512 with what it pads with."""
        own_pad, self.network.pad_id = self.network.pad_id, self._named("[PAD]")
        try:
            return [
                output
                for at in range(0, len(windows), BATCH)
                for output in self.network.run(windows[at : at + BATCH], padded_to=LONGEST)
            ]
        finally:
            self.network.pad_id = own_pad

    def _words(self, chunk: _Chunk, kept: Floats) -> list[tuple[str, np.float32, Span | None]]:
        """Words of a chunk: the text with its marker, the mean probability, the span in the source where known."""
        words: list[tuple[str, list[Any], list[Span]]] = []
        for at, (piece, probability) in enumerate(zip(chunk.pieces, kept, strict=True)):
            if piece in self._special:
                continue
            # The first place is that of [CLS], which no source has.
            place = (
                [chunk.offsets[at - 1]] if chunk.offsets is not None and 0 < at <= len(chunk.offsets) else []
            )
            if self._begins(piece):
                words.append((piece, [probability], place))
            else:
                text, probabilities, places = words[-1]
                words[-1] = (text + piece.lstrip(self._marker), [*probabilities, probability], places + place)
        return [
            (text, sum(found) / len(found), (places[0][0], places[-1][1]) if places else None)
            for text, found, places in words
        ]

    @property
    def _marker(self) -> str:
        return "##" if self.family == "bert" else "▁"

    def _begins(self, piece: str) -> bool:
        if self.family == "bert":
            return not piece.startswith("##")
        return piece in string.punctuation or piece.startswith("▁")

    def _threshold(self, words: Sequence[tuple[str, Any, Span | None]], reduce: float) -> Any:
        weighed = [probability for text, probability, _ in words for _ in range(self._count_word(text))]
        return np.percentile(weighed, int(100 * reduce + 1)) if weighed else 1.0

    def _is_near(self, words: Sequence[tuple[str, Any, Span | None]], reduce: float) -> bool:
        threshold = self._threshold(words, reduce)
        near = [found for _, found, _ in words if abs(found - threshold) <= NEAR]
        return len(near) > 1 or any(found != threshold for found in near)

    def _mask(self, source: str, chunks: Sequence[_Chunk], words: Sequence[Any], reduce: float) -> KeepMask:
        texts: list[str] = []
        kept: list[bool] = []
        spans: list[Span | None] = []
        for chunk, found in zip(chunks, words, strict=True):
            threshold = self._threshold(found, reduce)
            at = chunk.start
            for text, probability, place in found:
                bare = text.lstrip("▁") if self.family == "xlm-roberta" else text
                span = _trimmed(source, place) if place else _find(source, bare, at, chunk.end)
                at = span[1] if span else at
                texts.append(bare)
                kept.append(bool(probability > threshold or (threshold == 1.0 and probability == threshold)))
                spans.append(span)
        return KeepMask(tuple(texts), tuple(kept), tuple(spans))

    def _at_rate_1(self, source: str) -> KeepMask:
        tokens = self.tokenizer.tokens(source)
        texts = [
            word
            for text in self._texts(tokens, self._ranges(tokens))
            for word in _WORD_AT_RATE_1.findall(text)
        ]
        spans: list[Span | None] = []
        at = 0
        for text in texts:
            spans.append(span := _find(source, text, at, len(source)))
            at = span[1] if span else at
        return KeepMask(tuple(texts), (True,) * len(texts), tuple(spans))


def _family(name: str, model_type: str) -> Family:
    if "bert-base-multilingual-cased" in name:
        return "bert"
    return "xlm-roberta" if "xlm-roberta-large" in name or model_type == "xlm-roberta" else "bert"


def _find(source: str, text: str, start: int, stop: int) -> Span | None:
    """Within a chunk: what the tokenizer has changed is nowhere, and all the rest would be searched for it."""
    at = source.find(text, start, stop) if text else -1
    return (at, at + len(text)) if at >= 0 else None


def _trimmed(source: str, span: Span) -> Span:
    start, end = span
    while start < end and source[start].isspace():
        start += 1
    return start, end


def gpt35_counter() -> CountWord:
    """Needs tiktoken's file of that encoding, from its cache or the network. Raises TokenCounterUnavailable."""
    import tiktoken

    try:
        encoding = tiktoken.encoding_for_model("gpt-3.5-turbo")
    except Exception as error:  # tiktoken lets through whatever its download raised
        raise TokenCounterUnavailable(
            "LLMLingua weighs words by tokens of gpt-3.5-turbo, and tiktoken cannot load that encoding "
            f"(set TIKTOKEN_CACHE_DIR to a folder that holds it): {error}"
        ) from error
    return lambda word: len(encoding.encode(word))
