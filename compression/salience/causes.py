"""Causes of a failed build or test run: reports of errors come first, one of each kind before its repetitions."""

import re
from collections.abc import Sequence

import numpy as np

from compression.salience.salience import Salience, read_salience
from compression.source.units import FRAMING, Segmentation

# ruff: noqa: RUF001 - words of other scripts are intended


# Words that ask for faults, in the most common languages.
FAULT = re.compile(
    r"\b(?:errors?|fail\w*|wrong|problems?|exceptions?|crash\w*|issues?|broke\w*|warnings?|faults?|bugs?|alerts?"
    r"|stack ?trace|fehler\w*|probleme?|absturz|warnung\w*|erreurs?|échou\w*|panne|errores|fall[oóaó]\w*|problema"
    r"|erro|falha|errore"
    r"|ошибк\w*|сбо[йия]\w*|проблем\w*|hata\w*|lỗi)\b|错误|错|失败|异常|故障|エラー|失敗|障害|خطأ|أخطاء|مشكلة|त्रुटि|समस्या|오류|실패",
    re.IGNORECASE,
)
# It says that something failed before it, and not what.
_HOLLOW = re.compile(
    r"(?i)\bexit(?:ed)?(?: with)? (?:code|status)\b|\berror \d+\Z|\b\d+ (?:tests? )?(?:failed|failures?|errors?)\b"
    r"|\bto rerun pass\b|\bcould not compile\b|\bnot remade\b"
)
_ERROR = 0.85
_MOST_LOG = 0.3
_LEAST_PRINTED = 0.3
# Above what a scorer gives.
_CAUSE = 0.99


def with_causes(text: Segmentation, scores: Sequence[float], query: str) -> Sequence[float]:
    """The scores; of what a build or a test run printed, where faults are asked for, its causes before all else."""
    if FAULT.search(query) is None or not text.units:
        return scores
    salience = read_salience(text)
    if salience.is_log.mean() > _MOST_LOG or not _is_printed(text):
        return scores
    causes = _in_order(text, salience, scores)
    raised = list(scores)
    for rank, unit in enumerate(causes):
        raised[unit] = max(raised[unit], 1.0 - (1.0 - _CAUSE) * (rank + 1) / (len(causes) + 1))
    return raised


def _is_printed(text: Segmentation) -> bool:
    """A good share is in lines or in reports that make sense alone."""
    content = [unit.kind for unit in text.units if unit.kind not in FRAMING]
    return content.count("line") >= _LEAST_PRINTED * len(content)


def _in_order(text: Segmentation, salience: Salience, scores: Sequence[float]) -> list[int]:
    """Units that report an error: the first of each template, then the second, those that say little last."""
    found = np.flatnonzero((salience.level >= _ERROR - 0.01) & ~salience.noise & ~salience.repeats).tolist()
    seen: dict[int, int] = {}
    keys: dict[int, tuple[bool, int, float]] = {}
    for unit in found:
        template = int(salience.template[unit])
        times = seen[template] = seen.get(template, -1) + 1 if template >= 0 else 0
        is_hollow = _HOLLOW.search(text.source, text.units[unit].start, text.units[unit].end) is not None
        keys[unit] = is_hollow, times, -scores[unit]
    return sorted(found, key=keys.__getitem__)
