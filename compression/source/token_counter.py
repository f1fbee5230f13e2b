"""Counters of tokens: their protocol, one by a tokenizer, and a fake one that needs none."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer


class TokenCounter(Protocol):
    """Counts tokens as the model does that the text is for. Deterministic, safe to share between threads."""

    @property
    def name(self) -> str:
        """The tokenizer that a receipt names."""
        ...

    @property
    def sha256(self) -> str:
        """Of its file, in hex; empty where it has none."""
        ...

    def count(self, text: str) -> int:
        """Tokens of `text` by itself, without special tokens around it."""
        ...

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """`count` of each, quicker than one by one."""
        ...


class FakeCounter:
    """A fake: words and marks are tokens. For tests and for trying things out, never for a receipt."""

    name = "fake-words"
    sha256 = ""
    _TOKEN = re.compile(r"\w+|[^\w\s]")

    def count(self, text: str) -> int:
        return len(self._TOKEN.findall(text))

    def count_many(self, texts: Sequence[str]) -> list[int]:
        return [self.count(text) for text in texts]


# Splitting patterns that never put a character and the space after it into one token, so that text cut before
# such a space counts the same in pieces: GPT-2's, and those of cl100k, Llama 3, Qwen 2 and 3, Qwen 3.5.
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r"+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_KNOWN_PATTERNS = frozenset(
    _CONTRACTIONS + rf"|[^\r\n\p{{L}}\p{{N}}]?{letters}+|\p{{N}}{digits}| ?[^\s{others}\p{{N}}]" + _REST
    for letters, others in ((r"\p{L}", r"\p{L}"), (r"[\p{L}\p{M}]", r"\p{L}\p{M}"))
    for digits in ("", "{1,3}")
)
# Characters that only some consider white space.
_ODD = "\u180e\u200b\u2060\ufeff"
_SPACE, _LINE_END, _WHITE, _SOLID = 0, 1, 2, 3
_SPACES = re.compile(rf"(?<=[^\s{_ODD}]) ")
_LINES = re.compile(rf"(?<=[^\s{_ODD}]) |(?<=[\r\n])(?=[^\s{_ODD}])")
# A piece runs up to a space after a character that nobody considers white space.
_WORDS = re.compile(
    rf"[\s{_ODD}]*+[^\s{_ODD}]++(?:(?:[^\S ]|[{_ODD}])[\s{_ODD}]*+[^\s{_ODD}]*+)*+|[\s{_ODD}]++"
)
# One of these, whichever no text holds, separates pieces while they are cut.
SEPARATORS = "\0\1\2\3\4\5\6\7\ufdd0\ufdd1\ufdd2\ufdd3"


@dataclass(frozen=True, slots=True)
class Cuts:
    """Text may always be cut before a space that follows a character other than white space; with `after_lines` also
    after a line end that no white space follows. GPT-2's pattern reads a line end otherwise when something follows.
    """

    after_lines: bool


def cuts_of(definition: dict[str, Any]) -> Cuts | None:
    """By what `tokenizer.json` says; None where text may count otherwise in pieces, wherever it is cut."""
    if (definition.get("normalizer") or {"type": "NFC"})["type"] != "NFC":
        return None
    if any(
        token["lstrip"] or token["rstrip"] or re.search(r"\s", token["content"])
        for token in definition.get("added_tokens", ())
    ):
        return None
    splitter = definition.get("pre_tokenizer") or {}
    if splitter.get("type") == "ByteLevel":
        is_plain = bool(splitter.get("use_regex")) and not splitter.get("add_prefix_space")
        return Cuts(after_lines=False) if is_plain else None
    steps = splitter.get("pretokenizers", ())
    if [step.get("type") for step in steps] != ["Split", "ByteLevel"]:
        return None
    split, byte_level = steps
    plain = split["behavior"] == "Isolated" and not split["invert"]
    whole = not byte_level.get("use_regex") and not byte_level.get("add_prefix_space")
    is_known = split["pattern"].get("Regex") in _KNOWN_PATTERNS
    return Cuts(after_lines=True) if plain and whole and is_known else None


def _kinds() -> NDArray[np.uint8]:
    """By code point; all from the last on are like it."""
    kinds = np.full(0x10000, _SOLID, np.uint8)
    every = "".join(map(chr, range(0x10000)))
    kinds[[ord(mark) for mark in re.findall(rf"[\s{_ODD}]", every)]] = _WHITE
    kinds[[ord(" "), ord("\r"), ord("\n")]] = _SPACE, _LINE_END, _LINE_END
    return kinds


_KINDS = _kinds()


def split_pieces(texts: Sequence[str], cuts: Cuts) -> tuple[list[str], NDArray[np.int64]]:
    """The pieces of all texts, and where those of each begin, with their number last: (texts + 1,)."""
    separator = next((mark for mark in SEPARATORS if not any(mark in text for text in texts)), None)
    if separator is None or not texts:
        found = [_WORDS.findall(text) for text in texts]
        return list(chain.from_iterable(found)), np.cumsum([0, *map(len, found)])
    joined = separator.join(texts)
    encoding, width = ("ascii", np.dtype(np.uint8)) if joined.isascii() else ("utf-32-le", np.dtype("<u4"))
    codes = np.frombuffer(joined.encode(encoding, "surrogatepass"), width)
    is_end = codes == ord(separator)
    at = _cut_before(codes, is_end, cuts)
    parted = np.insert(codes, at, width.type(ord(separator))).tobytes()
    pieces = parted.decode(encoding, "surrogatepass").split(separator)
    ends = np.flatnonzero(is_end)
    starts = np.searchsorted(at, ends) + np.arange(1, len(ends) + 1)
    return pieces, np.concatenate([[0], starts, [len(pieces)]])


def stretches(text: str, longest: int, cuts: Cuts) -> Iterator[str]:
    """The text in parts of about `longest` characters, cut where it may be."""
    begin = 0
    while len(text) - begin > longest:
        found = (_LINES if cuts.after_lines else _SPACES).search(text, begin + longest)
        end = found.start() if found else len(text)
        yield text[begin:end]
        begin = end
    if begin < len(text):
        yield text[begin:]


def _cut_before(codes: NDArray[Any], is_end: NDArray[np.bool_], cuts: Cuts) -> NDArray[np.int64]:
    """The places inside of texts at which a piece begins."""
    kinds = _KINDS[codes if codes.itemsize == 1 else np.minimum(codes, len(_KINDS) - 1)]
    kinds[is_end] = _WHITE
    is_solid = kinds == _SOLID
    cut = (kinds[1:] == _SPACE) & is_solid[:-1]
    if cuts.after_lines:
        cut |= is_solid[1:] & (kinds[:-1] == _LINE_END)
    return np.flatnonzero(cut) + 1


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

    def __init__(self, tokenizer: Tokenizer, *, name: str, sha256: str = "") -> None:
        self._tokenizer = tokenizer
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._name = name
        self._sha256 = sha256
        self._cache: dict[str, int] = {}
        self._cuts = cuts_of(json.loads(tokenizer.to_str()))

    @classmethod
    def from_file(cls, path: Path, *, name: str) -> TokenizerCounter:
        """`path` is a `tokenizer.json` or the folder that holds one."""
        file = path / "tokenizer.json" if path.is_dir() else path
        if not file.is_file():
            raise FileNotFoundError(f"no tokenizer at {file}")
        raw = file.read_bytes()
        return cls(Tokenizer.from_buffer(raw), name=name, sha256=hashlib.sha256(raw).hexdigest())

    @property
    def name(self) -> str:
        return self._name

    @property
    def sha256(self) -> str:
        return self._sha256

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
        """The text of these tokens. Raises `UnknownToken`."""
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
