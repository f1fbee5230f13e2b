"""Where text can be cut so that its pieces count the same tokens as the whole, and the quick cut of many texts."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
