"""Lines that are the same message with other values, as Drain finds them (He et al., 2017), but by hashes.

Lines are alike whose masked text is the same. Of a log's lines those are alike, too, that differ in one word only,
where at least four different words occur in its place: a name, a host, a state.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compression.salience.levels import LEVEL_WORDS, Bools, Ints
from compression.source.units import Segmentation

_PART = r"""[^\s=:,;()\[\]{}<>"'|]"""
_NOT_DIGIT = r"""[^\s=:,;()\[\]{}<>"'|\d]"""
# Tried where a part begins, and nowhere inside it: a long line costs its length.
# A status or a level that is a number says what happened, and stays; so does the letter before a klog date.
_MEANT = (
    r"""(?:(?:(?<=" )|(?<=tatus[=: ])|(?<=tatus(?:"|:)[: ])|(?<=code[=: ])|(?<=code: ))[1-5]\d\d(?![\w.])"""
    r"""|(?:(?<=evel":)|(?<=evel": )|(?<=xit code )|(?<=xit status ))\d++"""
    r"""|0 (?:failed|failures?|errors?)\b|[IWEF]\d{4} )"""
)
_VARIABLE = re.compile(
    rf"(?<!{_PART})(?!{_MEANT})(?:{_NOT_DIGIT}*+\d{_PART}*+|(?:[A-Za-z]\\|/){_PART}++|0x[0-9a-fA-F]++)"
    r"""|(?<=[\w)\]] )(?:"[^"\n]*+"|'[^'\n]*+'|`[^`\n]*+`)"""
)
_RUN = re.compile(r"\*(?:[\s:,./+|-]++\*)++")
LONGEST = 300


def masked(texts: Sequence[str]) -> list[str]:
    """Each text's first line with `*` for what changes from one line of its kind to the next."""
    heads = [_head(text) for text in texts]
    # One pass over all of them costs a third of a pass over each.
    return (
        _RUN.sub("*", _VARIABLE.sub("*", "\n".join(heads)).replace("\n", "\n\0"))
        .replace("\0", "")
        .split("\n")
    )


def _head(text: str) -> str:
    text = text.lstrip()
    end = text.find("\n")
    return text[: LONGEST if end < 0 else min(end, LONGEST)].replace("\r", " ")


_KINDS = frozenset({"line", "list_item", "table_row", "code_block"})
_WIDTH = 24
_FEWEST_FIXED = 3
_VALUES = 4


@dataclass(frozen=True)
class Templates:
    """`of` is the template of each unit, -1 for those without; `samples` has one masked text for each template."""

    of: Ints
    samples: list[str]
    sizes: Ints
    first: Ints
    last: Ints


def _candidates(text: Segmentation) -> Ints:
    """What is written line by line; of JSON only an object on a line of its own."""
    source = text.source
    found = [
        number
        for number, unit in enumerate(text.units)
        if unit.kind in _KINDS
        or (unit.kind == "json_member" and unit.frame is None and source[unit.start] == "{")
    ]
    return np.array(found, np.int64)


def find_templates(text: Segmentation, is_log: Bools) -> Templates:
    """`is_log` says which units are lines of a log."""
    candidates = _candidates(text)
    texts = masked([text.text(unit) for unit in candidates.tolist()])
    names, own = _numbered(texts if len(candidates) else [])
    of_name = _merged(names, _logs_among(own, is_log[candidates], len(names)))
    found, first_name, of_template = np.unique(of_name, return_index=True, return_inverse=True)
    own = of_template[own] if len(own) else own
    of = np.full(len(text.units), -1, np.int64)
    of[candidates] = own
    first, last = np.zeros(len(found), np.int64), np.zeros(len(found), np.int64)
    first[own[::-1]] = candidates[::-1]
    last[own] = candidates
    sizes = np.bincount(own, minlength=len(found)).astype(np.int64)
    return Templates(of, [names[at] for at in first_name.tolist()], sizes, first, last)


def _numbered(texts: Sequence[str]) -> tuple[list[str], Ints]:
    """The different texts in the order they come, and which of them each is."""
    numbers: dict[str, int] = {}
    own = np.array([numbers.setdefault(text, len(numbers)) for text in texts], np.int64)
    return list(numbers), own


def _logs_among(own: Ints, is_log: Bools, count: int) -> Bools:
    found = np.zeros(count, bool)
    found[own[is_log]] = True
    return found


def _merged(names: Sequence[str], may_merge: Bools) -> Ints:
    """For each masked text the number of the template that it belongs to."""
    of = np.arange(len(names))
    chosen = np.flatnonzero(may_merge)
    if len(chosen) < _VALUES:
        return of
    words, lengths = _word_table([names[at] for at in chosen.tolist()])
    for _ in range(2):
        words = _with_wildcards(words, lengths)
    # What has become the same with its wildcards is one template.
    whole, _ = _hashes(words, lengths)
    _, first, same = np.unique(whole, return_index=True, return_inverse=True)
    of[chosen] = chosen[first[same]]
    return of


def _word_table(names: Sequence[str]) -> tuple[Ints, Ints]:
    """Numbers of the first words: (texts, width), 0 for a masked one, below it for a level; and how many there are."""
    numbers = {word: -2 - at for at, word in enumerate(LEVEL_WORDS)}
    table = np.full((len(names), _WIDTH), -1, np.int64)
    lengths = np.zeros(len(names), np.int64)
    for row, name in enumerate(names):
        words = name.split()
        lengths[row] = len(words)
        own = [0 if "*" in word else numbers.setdefault(word, len(numbers) + 1) for word in words[:_WIDTH]]
        table[row, : len(own)] = own
    return table, lengths


def _hashes(words: Ints, lengths: Ints) -> tuple[Ints, Ints]:
    """Of each row as a whole: (rows,), and of what each word adds to it: (rows, width)."""
    salt = np.random.default_rng(7).integers(1, 2**62, _WIDTH + 1).astype(np.uint64)
    spread = (words.astype(np.uint64) + np.uint64(99)) * salt[:_WIDTH]
    parts = (spread ^ (spread >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15)
    whole = parts.sum(axis=1) + lengths.astype(np.uint64) * salt[_WIDTH]
    return whole.astype(np.int64), parts.astype(np.int64)


def _with_wildcards(words: Ints, lengths: Ints) -> Ints:
    """The table with 0 where rows that are else the same have at least `_VALUES` different words."""
    whole, parts = _hashes(words, lengths)
    varies = np.zeros(words.shape, bool)
    fixed = (words > 0).sum(axis=1) > _FEWEST_FIXED
    for column in range(1, min(_WIDTH, int(lengths.max()))):
        rows = np.flatnonzero(fixed & (words[:, column] > 0))
        others = whole[rows] - parts[rows, column]
        _, different = np.unique(whole[rows], return_index=True)
        values, counts = np.unique(others[different], return_counts=True)
        varies[rows, column] = np.isin(others, values[counts >= _VALUES])
    # One wildcard a row and pass: two at once could join what has nothing in common.
    varies &= np.cumsum(varies, axis=1) == 1
    return np.where(varies, 0, words)
