"""Counts tokens with a Hugging Face `tokenizer.json`; the only file here that imports `tokenizers`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from compression.counting.token_pieces import Cuts, cuts_of, split_pieces, stretches

_LONGEST_CACHED = 48
# Characters that are cut into pieces together: more would take more memory, and no less time.
_AT_ONCE = 1 << 16
_CACHED_PIECES = 200_000
# Of which a text is read first, to find where its first tokens end.
_CHARS_A_TOKEN = 16


class UnknownToken(ValueError):
    """The tokenizer has no such token."""

    def __init__(self, token: int, tokenizer: str) -> None:
        super().__init__(f"{token} is not a token of {tokenizer}")
        self.token = token


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
        self._cuts = cuts_of(json.loads(tokenizer.to_str()))

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
        if self._cuts is None:
            return self._encode(texts)
        counts: list[int] = []
        for some in _some_at_once(texts):
            if len(some) == 1:
                parts = stretches(some[0], _AT_ONCE, self._cuts)
                counts.append(sum(self._count_pieces([part], self._cuts)[0] for part in parts))
            else:
                counts += self._count_pieces(some, self._cuts)
        return counts

    def text_of(self, ids: Sequence[int]) -> str:
        """What these tokens say. Raises `UnknownToken`."""
        for token in ids:
            if not 0 <= token < self._tokenizer.get_vocab_size():
                raise UnknownToken(token, self._name)
        return str(self._tokenizer.decode(list(ids)))

    def beginning(self, text: str, tokens: int) -> str:
        """As much of the text as so many tokens cover; it may be counted as one more."""
        read = tokens * _CHARS_A_TOKEN
        while True:
            ends = [end for _, end in self._tokenizer.encode(text[:read], add_special_tokens=False).offsets]
            if len(ends) > tokens:
                return text[: ends[tokens - 1]]
            if read >= len(text):
                return text
            read *= 4

    def _count_pieces(self, texts: Sequence[str], cuts: Cuts) -> list[int]:
        pieces, of_texts = split_pieces(texts, cuts)
        known = self._cache
        try:
            counts = np.fromiter(map(known.__getitem__, pieces), np.int64, len(pieces))
        except KeyError:
            known = self._known(set(pieces))
            counts = np.fromiter(map(known.__getitem__, pieces), np.int64, len(pieces))
        running = np.concatenate([[0], np.cumsum(counts)])
        found: list[int] = np.diff(running[of_texts]).tolist()
        return found

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


def _some_at_once(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """The texts in order, as many at a time as have about `_AT_ONCE` characters."""
    ends = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)))
    first = 0
    while first < len(texts):
        done = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, done + _AT_ONCE, "right")))
        yield texts[first:last]
        first = last
