"""Features of what units are whatever the query, and of whether the query asks for faults or for the latest state."""

# ruff: noqa: RUF001 - words of other scripts are intended
import re

import numpy as np

from compression.features.columns import Columns
from compression.features.layout import Layout
from compression.salience import Salience

# Words that ask for faults, in the most common languages; without one of them the feature is 0.
_FAULT = re.compile(
    r"\b(?:errors?|fail\w*|wrong|problems?|exceptions?|crash\w*|issues?|broke\w*|warnings?|faults?|bugs?|alerts?"
    r"|stack ?trace|fehler\w*|probleme?|absturz|warnung\w*|erreurs?|échou\w*|panne|errores|fall[oóaó]\w*|problema"
    r"|erro|falha|errore"
    r"|ошибк\w*|сбо[йия]\w*|проблем\w*|hata\w*|lỗi)\b|错误|错|失败|异常|故障|エラー|失敗|障害|خطأ|أخطاء|مشكلة|त्रुटि|समस्या|오류|실패",
    re.IGNORECASE,
)
# Words that ask for the newest state of a thing.
_NOW = re.compile(
    r"\b(?:now|current\w*|latest|newest|still|status|state|today|most recent\w*|when (?:will|can|does|is)|next"
    r"|noch|jetzt|aktuell\w*|derzeit\w*|offen\w*|stand|maintenant|actuel\w*|ahora|actual\w*|todavía|adesso|agora|сейчас"
    r"|теперь|статус\w*)\b|目前|现在|現在|最新|当前|الآن|حاليا|अभी|지금|현재",
    re.IGNORECASE,
)


def add_salience(columns: Columns, salience: Salience, query: str, layout: Layout) -> None:
    asks = float(_FAULT.search(query) is not None)
    level = salience.level
    share = level / max(float(level.max(initial=0.0)), 0.3)
    columns.add("asks.fault", asks)
    _add_newest(columns, query, layout)
    columns.add("is.noise", salience.noise)
    columns.add("is.level", level)
    columns.add("is.level.share", share)
    columns.add("is.level.asked", share * asks)
    columns.add("is.level.near", layout.smooth(level[:, None], 2)[:, 0])
    columns.add("is.log", salience.is_log)
    columns.add("is.template", np.log1p(salience.template_size) / 4)
    columns.add("is.rare", (salience.template_size == 1).astype(np.float32) * salience.is_log)
    columns.add("is.first", salience.is_first)
    columns.add("is.last", salience.is_last)
    columns.add("is.change", salience.changes_state)
    columns.add("is.copy", salience.repeats)
    columns.add("is.letters", np.log1p(salience.letters) / 6)
    columns.add("context.logs", float(np.mean(salience.is_log)) if len(level) else 0.0)


def _add_newest(columns: Columns, query: str, layout: Layout) -> None:
    """How recent a part is, where the query asks for the latest."""
    asks = float(_NOW.search(query) is not None)
    count = max(1, len(layout.documents.first))
    at = layout.documents.of if count > 1 else layout.paragraphs.of
    back = (at.max(initial=0) - at).astype(np.float32)
    columns.add("asks.now", asks)
    columns.add("asks.now.newest", asks * np.exp(-back / 3))
    columns.add("asks.now.place", asks * (1 - back / max(1.0, float(back.max(initial=0)))))
