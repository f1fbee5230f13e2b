"""Counts tokens with a Hugging Face `tokenizer.json`; the only file here that imports `tokenizers`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

# Splitting patterns that never put a character and the space after it into one token, so that text cut before
# such a space counts the same in pieces: GPT-2's, and those of cl100k, Llama 3, Qwen 2 and 3, Qwen 3.5.
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r"+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_KNOWN_PATTERNS = frozenset(
    _CONTRACTIONS + rf"|[^\r\n\p{{L}}\p{{N}}]?{letters}+|\p{{N}}{digits}| ?[^\s{others}\p{{N}}]" + _REST
    for letters, others in ((r"\p{L}", r"\p{L}"), (r"[\p{L}\p{M}]", r"\p{L}\p{M}"))
    for digits in ("", "{1,3}")
)
# A piece runs up to a space that follows a character which no one takes for white space.
_ODD = "\u180e\u200b\u2060\ufeff"
_PIECE = re.compile(
    rf"[\s{_ODD}]*+[^\s{_ODD}]++(?:(?:[^\S ]|[{_ODD}])[\s{_ODD}]*+[^\s{_ODD}]*+)*+|[\s{_ODD}]++"
)
_LONGEST_CACHED = 48
_CACHED_PIECES = 200_000


class TokenizerCounter:
    """Counts as `Tokenizer.encode(text, add_special_tokens=False)` does.

    Where the tokenizer cuts text at spaces anyway, counts of pieces are cached: text repeats its words.
    """

    def __init__(self, tokenizer: Tokenizer, *, name: str) -> None:
        self._tokenizer = tokenizer
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._name = name
        self._cache: dict[str, int] = {}
        self._in_pieces = counts_in_pieces(json.loads(tokenizer.to_str()))

    @classmethod
    def from_file(cls, path: Path, *, name: str) -> TokenizerCounter:
        """`path` is a `tokenizer.json` or the folder that holds one."""
        file = path / "tokenizer.json" if path.is_dir() else path
        if not file.is_file():
            raise FileNotFoundError(f"no tokenizer at {file}")
        return cls(Tokenizer.from_file(str(file)), name=name)

    @property
    def name(self) -> str:
        return self._name

    def count(self, text: str) -> int:
        return self.count_many([text])[0]

    def count_many(self, texts: Sequence[str]) -> list[int]:
        if not self._in_pieces:
            return self._encode(texts)
        pieces = [_PIECE.findall(text) for text in texts]
        distinct = set().union(*pieces)
        known = self._known(distinct)
        return [sum(map(known.__getitem__, of_text)) for of_text in pieces]

    def _known(self, distinct: set[str]) -> dict[str, int]:
        """A mapping that holds all of `distinct`. A cache is replaced, never emptied: others may be reading it."""
        cache = self._cache
        missing = sorted(distinct.difference(cache))
        if not missing:
            return cache
        counts = dict(zip(missing, self._encode(missing), strict=True))
        known = {**{piece: cache[piece] for piece in distinct if piece in cache}, **counts}
        self._remember(counts)
        return known

    def _remember(self, counts: dict[str, int]) -> None:
        short = {piece: count for piece, count in counts.items() if len(piece) <= _LONGEST_CACHED}
        if len(self._cache) + len(short) > _CACHED_PIECES:
            self._cache = short
        else:
            self._cache.update(short)

    def _encode(self, texts: Sequence[str]) -> list[int]:
        encoded = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [len(found) for found in encoded]


def counts_in_pieces(definition: dict[str, Any]) -> bool:
    """True where text cut before spaces counts the same in pieces as whole, by what `tokenizer.json` says."""
    if (definition.get("normalizer") or {"type": "NFC"})["type"] != "NFC":
        return False
    if any(
        token["lstrip"] or token["rstrip"] or re.search(r"\s", token["content"])
        for token in definition.get("added_tokens", ())
    ):
        return False
    splitter = definition.get("pre_tokenizer") or {}
    if splitter.get("type") == "ByteLevel":
        return bool(splitter.get("use_regex")) and not splitter.get("add_prefix_space")
    steps = splitter.get("pretokenizers", ())
    if [step.get("type") for step in steps] != ["Split", "ByteLevel"]:
        return False
    split, byte_level = steps
    plain = split["behavior"] == "Isolated" and not split["invert"]
    whole = not byte_level.get("use_regex") and not byte_level.get("add_prefix_space")
    return plain and whole and split["pattern"].get("Regex") in _KNOWN_PATTERNS
