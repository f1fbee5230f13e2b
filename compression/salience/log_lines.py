"""Lines of a log: their severity, and which are one message with other values, as Drain finds them (He et al., 2017).

Severity is by the level that a line names, otherwise by words for failure. Lines are alike whose masked text is the
same. Of a log's lines those are alike, too, that differ in one word only, where at least four different words occur
in its place: a name, a host, a state.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from compression.source.units import Segmentation

# Some marks of other scripts look like ASCII ones; they are intended.
# ruff: noqa: RUF001


Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Floats = NDArray[np.float32]

_LEVEL_VALUES = {
    "trace": 0.1, "verbose": 0.1, "finest": 0.1, "v": 0.1, "10": 0.1,
    "debug": 0.15, "fine": 0.15, "d": 0.15, "20": 0.15,
    "info": 0.3, "information": 0.3, "i": 0.3, "30": 0.3, "notice": 0.35, "log": 0.3,
    "warn": 0.6, "warning": 0.6, "w": 0.6, "40": 0.6,
    "error": 0.85, "err": 0.85, "severe": 0.85, "failure": 0.85, "e": 0.85, "50": 0.85,
    "fatal": 1.0, "critical": 1.0, "crit": 1.0, "alert": 1.0, "emerg": 1.0, "panic": 1.0, "f": 1.0, "60": 1.0,
}  # fmt: skip
LEVEL_WORDS = tuple(
    form
    for word in _LEVEL_VALUES
    if len(word) > 2
    for form in (word, word.upper(), word.capitalize(), f"[{word.upper()}]")
)
_WORDS = "|".join(sorted((word for word in _LEVEL_VALUES if len(word) > 2), key=len, reverse=True))
_NAMED = re.compile(rf"""(?i:(?:level|lvl|severity)"?[=:] ?"?(?P<level>{_WORDS}|[1-6]0|[diwef])\b)""")
_UPPER = re.compile(rf"(?<![\w.-])(?P<level>{_WORDS.upper()})(?![\w.-])")
# After the time and other fields: [notice], [core:error], <warn>, Info; logcat's letter; klog's.
_BESIDE = re.compile(
    rf"[\[<|](?:\w{{1,20}}:)?(?P<inside>(?i:{_WORDS}))[\]>|]"
    rf"|\*\]?,? {{1,4}}(?P<plain>{_WORDS.title()}|{_WORDS})(?![\w.-])"
    rf"|^[\[<]?(?P<first>(?i:{_WORDS}))[\]>]?[: |]{{1,8}}\*|[\]\w]: {{1,2}}(?P<colon>(?i:{_WORDS})): "
    r"|(?:^|\* )(?P<letter>[VDIWEF])(?:/| \S)|^(?P<klog>[IWEF])\d{4} "
)
_REACH = 160
_NOUGHT = r"(?!s?\"?[=:]? ?(?:\*(?![\w.*])|0\b|none|null|false|\"\"))"
_STRONG = "|".join(
    (
        r"\w*(?:Exception|Error)\b|exceptions?\b|errors?\b|fail(?:ed|s|ure|ures|ing)?\b|fatal\b|panic(?:ked)?\b",
        r"abort(?:ed|ing)?\b|crash(?:ed|es|ing)?\b|corrupt(?:ed|ion)?\b|segfault\b|segmentation fault|core dumped",
        r"out of memory|oom\b|oom-killer|break-?in\b|traceback\b|fehler|fehlgeschlagen|erreur|échec|échoué|fallo\b",
        r"falló|fallido|falha|errore\b|fallito|mislukt|błąd|ошибк|сбой|错误|失败|異常|异常|エラー|失敗|오류|실패|خطأ",
    )
)
_WEAK = "|".join(
    (
        r"refused\b|denied\b|time[ds]?[ -]?out\b|unreachable\b|unable to\b|cannot\b|can't\b|could not\b|couldn't\b",
        r"lost\b|missing\b|invalid\b|illegal\b|killed\b|no such\b|not found\b|unauthori[sz]ed\b|forbidden\b",
        r"reject(?:ed|ing)?\b|disconnect(?:ed)?\b|violation\b|dropped\b|unexpected(?:ly)?\b|throttl\w{1,6}\b",
        r"exceed(?:ed|s)?\b|abgelehnt|отказано|拒绝|超时",
    )
)
_GRAVE = re.compile(
    rf"(?i)(?<![\w/.-])(?<!no )(?<!without )(?:(?P<strong>{_STRONG})|(?P<weak>{_WEAK})){_NOUGHT}"
)
_FAILED_TEST = re.compile(
    r"\A(?:--- )?FAIL(?:ED)?\b|^E {2,}\S|\A\S{1,200}+ (?:FAILED|ERROR)\b|\Anot ok\b|\A[✕✗✘✖×] |\A\[ *FAILED *\]"
    r"|\AERROR \S|\Athread '[^'\n]{0,120}' panicked|\Aerror(?:\[[^\]\n]{1,10}\])?: |\Atest \S.{0,200} FAILED\Z"
    r"|\Atest result: FAILED|\A(?:=+ |Tests?:? )?(?:\*|[1-9]\d*) (?:failed|failures?|errors?)\b"
    r"|\A(?:npm ERR!|npm error|make: \*\*\*)|: (?:fatal )?error: |^[ \t]{0,8}\*[ \t]+error[ \t]"
    # ruff's and rustc's reports: F821 Undefined name, above the place
    r"|\A[A-Z]{1,5}\d{1,5} [^\n]{1,200}\n[ \t]{0,8}--> |^[A-Z]\w{1,60}(?:Error|Exception)(?: \[\w{1,40}\])?: \S",
    re.MULTILINE,
)
_FAILED_HEAD = re.compile(r"___|---- |--- FAIL|FAIL: |ERROR: |● ")
_FOUND = re.compile(
    r"^[ \t]{0,16}(?:[^\s:]{1,200}+:\d{1,6}: \S|Expected\b|Received\b|expected:? |E {2,}\S)", re.MULTILINE
)
_STATUS = re.compile(
    r"""(?:(?:HTTP/\d(?:\.\d)?|\*)"? |[Ss]tatus(?:[_ ]?[Cc]ode)?["']?[=: ] ?)(?P<status>[45])\d\d\b"""
    r"|(?i:exit(?:ed)?(?: with)?(?: (?:code|status))|exit_?code\"?|returncode\"?)[ =:]{0,2}(?P<exit>-?[1-9]\d{0,2})\b"
)
# In prose only what is written as machines write it.
_NEEDLES = ("rror", "RROR", "xception", "raceback", "atal", "ATAL", "anic", "xit", "tatus", "HTTP/")
_OTHER_NEEDLES = ("错误", "エラー", "шибка", "异常", "失败", "오류")
_BEGINS = r"(?:\A|(?<=[\n\"'>([{|:,])|(?<=[\n\"'>([{|:,] ))"
_MACHINE = re.compile(
    rf"{_BEGINS}(?i:error|fatal|panic|fehler|erreur|erro|ошибка)(?:\[\w{{1,10}}\])?: ?+(?!0\b|null|none|\"\"|false)\S"
    r"|错误[:：]|エラー[:：]|异常[:：]|失败[:：]|오류[:：]"
    r"|\b[A-Z]\w{1,60}(?:Error|Exception)\b(?:(?: \[\w{1,40}\])?: |\Z)"
    r"|\bTraceback \(most recent|\"(?:error|errors|exception)\": ?+(?!null|\"\"|false|0|\[\]|\{\})|\bERROR\b"
)


def level_of_line(line: str, *, is_log: bool) -> float:
    """0..1 for a line whose numbers, ids and paths are masked."""
    level = _named_level(line)
    if not is_log:
        # A word for failure in code, a file name or a search hit does not mean a failure.
        return 0.9 if _FAILED_TEST.search(line) else _level_in_prose(line)
    if level >= 0.6:
        return level
    status = _level_of_status(line)
    grave = _GRAVE.search(line)
    if grave is not None:
        # A line that names its level is trusted: what it mentions in passing counts for less.
        status = max(status, (0.7 if grave.group("strong") else 0.6) - (0.1 if level else 0.0))
    return max(level, status if level != 0.15 and level != 0.1 else min(status, 0.45))


def _named_level(line: str) -> float:
    for pattern in (_NAMED, _UPPER, _BESIDE):
        found = pattern.search(line, 0, _REACH)
        if found is not None:
            word = next(group for group in found.groups() if group)
            return _LEVEL_VALUES[word.lower()]
    return 0.0


def _level_of_status(text: str) -> float:
    found = _STATUS.search(text)
    if found is None:
        return 0.0
    if found.group("exit"):
        return 0.85
    return 0.75 if found.group("status") == "5" else 0.5


def level_of_lines(text: str) -> float:
    """Level of several lines as one unit: an assertion and what it found, an entry of a log with its trace."""
    return 0.9 if _FAILED_TEST.search(text) else _level_in_prose(text)


def raised_in_failed_tests(text: Segmentation, levels: Floats) -> None:
    """Makes what a failed test found as severe as its name, whatever its words."""
    heads = {
        number
        for number, frame in enumerate(text.frames)
        if frame.kind == "block" and _FAILED_HEAD.match(text.source, text.units[frame.open].start)
    }
    for number, unit in enumerate(text.units) if heads else ():
        if unit.frame in heads and _FOUND.search(text.text(number)):
            levels[number] = max(levels[number], 0.9)


def levels_of_prose(text: Segmentation, starts: Ints, is_line: Bools) -> Floats:
    """Levels of units that are not lines, by what only machines write: `KeyError: 'x'`, `"error": "…"`, exit code 1."""
    levels = np.zeros(len(text.units), np.float32)
    places = np.array(sorted(_places(text.source)), np.int64)
    units = np.unique(np.searchsorted(starts, places, side="right") - 1)
    for unit in units[(units >= 0)].tolist():
        if not is_line[unit]:
            levels[unit] = _level_in_prose(text.text(unit))
    return levels


def _level_in_prose(text: str) -> float:
    return max(0.85 if _MACHINE.search(text) else 0.0, _level_of_status(text))


def _places(source: str) -> Sequence[int]:
    found = []
    for needle in _NEEDLES if source.isascii() else _NEEDLES + _OTHER_NEEDLES:
        at = source.find(needle)
        while at >= 0:
            found.append(at)
            at = source.find(needle, at + 1)
    return found


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
