"""The most tokens of a text or a prompt, proven from its model's tokenizer and template.

Every model of the library makes at most one token of each symbol that it is given: a character, or a byte of one that
it does not know. More can only come of what rewrites the text before: composed forms, replacements, prefixes."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from math import ceil, prod
from pathlib import Path
from typing import Any

from models.engine import PromptBound, PromptMaking

# How far Unicode's forms can lengthen UTF-8: U+1D160 becomes three letters of four bytes, and U+FDFA eleven times its
# own. Upper bounds for lower case (U+023A) and BERT's (NFD, then lower case, then spaces around ideographs).
_NORMALIZERS: Mapping[str, int] = {
    "NFC": 3,
    "NFD": 3,
    "NFKC": 11,
    "NFKD": 11,
    "Lowercase": 2,
    "BertNormalizer": 3 * 2 * 2,
    "StripAccents": 1,
    "Strip": 1,
    "Nmt": 1,
    "ByteLevel": 1,
}
# They cut a text and add nothing to it.
_CUTTERS = frozenset(
    {
        "BertPreTokenizer",
        "CharDelimiterSplit",
        "Digits",
        "FixedLength",
        "Punctuation",
        "Split",
        "UnicodeScripts",
        "Whitespace",
        "WhitespaceSplit",
    }
)
_MODELS = frozenset({"BPE", "Unigram", "WordPiece", "WordLevel"})


class _Unproven(Exception):
    """A part of which no bound is known."""


def tokens_per_byte(definition: Mapping[str, Any]) -> int | None:
    """The most tokens for each byte of UTF-8, without special tokens around the text; None where nothing is proven."""
    model = definition.get("model") or {}
    reader = _Reader(model)
    try:
        steps = reader.normalizer(definition.get("normalizer"))
        return steps * reader.pre_tokenizer(definition.get("pre_tokenizer")) * reader.fallback()
    except _Unproven:
        return None


def tokens_per_byte_of(tokenizer: str) -> int | None:
    """The same of a `tokenizer.json` or of its folder on this disk; None for one that is not here."""
    path = Path(tokenizer).expanduser()
    file = path / "tokenizer.json" if path.is_dir() else path
    try:
        return tokens_per_byte(json.loads(file.read_bytes()))
    except (OSError, ValueError):
        return None


class _Reader:
    """One tokenizer's parts, each as the factor by which it may multiply symbols."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        self._model = model
        self._has_byte_alphabet = False

    def normalizer(self, part: Mapping[str, Any] | None) -> int:
        if part is None:
            return 1
        kind = part.get("type")
        if kind == "Sequence":
            return prod(self.normalizer(each) for each in part["normalizers"])
        if kind == "Replace":
            return self._replace(part)
        if kind == "Prepend":
            # Once for each stretch between special tokens, of which there are no more than bytes.
            return 1 + self._symbols(part["prepend"])
        self._has_byte_alphabet |= kind == "ByteLevel"
        factor = _NORMALIZERS.get(str(kind))
        if factor is None:
            raise _Unproven
        return factor

    def pre_tokenizer(self, part: Mapping[str, Any] | None) -> int:
        if part is None:
            return 1
        kind = part.get("type")
        if kind == "Sequence":
            return prod(self.pre_tokenizer(each) for each in part["pretokenizers"])
        if kind == "ByteLevel":
            self._has_byte_alphabet = True
            return 2 if part.get("add_prefix_space") else 1
        if kind == "Metaspace":
            # For each space, and before each word.
            return 2 * self._symbols(part["replacement"])
        if kind not in _CUTTERS:
            raise _Unproven
        return 1

    def fallback(self) -> int:
        """The factor that the model itself may add: it falls back to the bytes of what it does not know."""
        if self._model.get("type") not in _MODELS:
            raise _Unproven
        if not self._model.get("byte_fallback"):
            return 1
        if self._model.get("continuing_subword_prefix") or self._model.get("end_of_word_suffix"):
            raise _Unproven
        # The letters that stand for bytes are two bytes themselves.
        return 2 if self._has_byte_alphabet else 1

    def _replace(self, part: Mapping[str, Any]) -> int:
        pattern = part["pattern"].get("String")
        if not pattern:
            raise _Unproven
        return max(1, ceil(self._symbols(part["content"]) / len(pattern.encode())))

    def _symbols(self, text: str) -> int:
        """The most symbols of a text: its characters, and the bytes of those that the vocabulary lacks."""
        return sum(1 if self._knows(character) else len(character.encode()) for character in text)

    def _knows(self, character: str) -> bool:
        vocabulary = self._model.get("vocab") or {}
        if isinstance(vocabulary, Mapping):
            return character in vocabulary
        return any(piece == character for piece, *_ in vocabulary)


# Between parts that are joined, and between messages that are put together.
JOINT_BYTES = 2


def bound_fields(making: PromptMaking | None) -> dict[str, int] | None:
    """The fields of the `PromptBound` that is proven of these prompts, if one is."""
    bound = proven_bound(making) if making is not None else None
    return asdict(bound) if bound is not None else None


def proven_bound(making: PromptMaking) -> PromptBound | None:
    """The bound that is proven of every plain prompt; None where nothing is. Read once, when a replica starts."""
    # Here, since nothing else needs the template language.
    from models.template.growth import template_growth

    factor = tokens_per_byte(json.loads(making.tokenizer))
    growth = template_growth(making.template, making.special_tokens, parts=making.parts)
    if factor is None or growth is None:
        return None
    return PromptBound(
        per_byte=factor * growth.copies,
        per_message=factor * (growth.per_message + JOINT_BYTES),
        per_part=factor * (growth.per_part + JOINT_BYTES),
        fixed=factor * growth.fixed,
    )
