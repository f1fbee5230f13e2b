"""Text of any kind: scripts and their ranges, which are written without spaces, and the terms of a query."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache

RANGES: dict[str, str] = {
    "latin": (
        "a-zA-Z\u00aa\u00ba\u00c0-\u02af\u1d00-\u1dbf\u1e00-\u1eff\u2c60-\u2c7f\ua720-\ua7ff"
        "\ufb00-\ufb06\uff21-\uff3a\uff41-\uff5a"
    ),
    "greek": "\u0370-\u03ff\u1f00-\u1fff",
    "cyrillic": "\u0400-\u052f\u1c80-\u1c8f\u2de0-\u2dff\ua640-\ua69f",
    "armenian": "\u0530-\u058f\ufb13-\ufb17",
    "hebrew": "\u0590-\u05ff\ufb1d-\ufb4f",
    "arabic": "\u0600-\u06ff\u0750-\u077f\u0870-\u08ff\ufb50-\ufdff\ufe70-\ufeff",
    "devanagari": "\u0900-\u097f\ua8e0-\ua8ff",
    "bengali": "\u0980-\u09ff",
    "gurmukhi": "\u0a00-\u0a7f",
    "gujarati": "\u0a80-\u0aff",
    "tamil": "\u0b80-\u0bff",
    "telugu": "\u0c00-\u0c7f",
    "kannada": "\u0c80-\u0cff",
    "malayalam": "\u0d00-\u0d7f",
    "sinhala": "\u0d80-\u0dff",
    "thai": "\u0e00-\u0e7f",
    "lao": "\u0e80-\u0eff",
    "tibetan": "\u0f00-\u0fff",
    "myanmar": "\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f",
    "georgian": "\u10a0-\u10ff\u1c90-\u1cbf\u2d00-\u2d2f",
    "hangul": "\u1100-\u11ff\u3130-\u318f\ua960-\ua97f\uac00-\ud7ff",
    "ethiopic": "\u1200-\u139f\u2d80-\u2ddf\uab00-\uab2f",
    "khmer": "\u1780-\u17ff\u19e0-\u19ff",
    "mongolian": "\u1800-\u18af",
    "kana": "\u3031-\u3035\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f",
    # Planes 2 and 3 are reserved for Han, assigned or not.
    "han": "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff",
}
_BOPOMOFO = "\u3100-\u312f\u31a0-\u31bf"
# Scripts without spaces, as ranges for a regular expression: there a word is a token, or a few neighbouring letters.
# Tibetan is none of them: a mark parts its syllables. Hangul has spaces.
IDEOGRAPHS = RANGES["han"] + RANGES["kana"] + _BOPOMOFO
UNSPACED = "".join(RANGES[script] for script in ("thai", "lao", "myanmar", "khmer"))
DENSE = IDEOGRAPHS + UNSPACED

# Letters used as symbols and in mathematics belong to no script.
_OF_NONE = "\\d_\u2070-\u218f\u2460-\u24ff\U0001d400-\U0001d7ff"
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_LETTERS = re.compile(f"[^\\W{_OF_NONE}]+")


def check_scripts(names: Collection[str]) -> None:
    """Raises `ValueError` for a name that is not in the list."""
    unknown = sorted(set(names) - RANGES.keys())
    if unknown:
        raise ValueError(f"scripts: {unknown[0]!r} is not one of {', '.join(RANGES)}")


def letters_outside(text: str, scripts: Collection[str]) -> tuple[int, int]:
    """The number of letters of `text` in none of `scripts`, and of all its letters."""
    # ASCII letters are Latin: where Latin is asked for, little of most texts remains to be searched.
    looked_at = "".join(_NOT_ASCII.findall(text)) if "latin" in scripts else text
    outside = sum(map(len, _outside(frozenset(scripts)).findall(looked_at)))
    return (outside, sum(map(len, _LETTERS.findall(text)))) if outside else (0, 0)


@lru_cache(maxsize=32)
def _outside(scripts: frozenset[str]) -> re.Pattern[str]:
    check_scripts(scripts)
    return re.compile(f"[^\\W{_OF_NONE}{''.join(RANGES[name] for name in sorted(scripts))}]+")


# ruff: noqa: RUF001


_ANY_DENSE = re.compile(f"[{DENSE}]")
_WORD = re.compile(r"\w+")
_RUN = re.compile(f"[{DENSE}]+|[^\\W{DENSE}]+")

# What a question is made of rather than about. Rare enough terms need no list: BM25 weighs them.
_STOP_WORDS = """
s t d m ll re ve don a an the of in on at to for from by with and or is are was were be been do does did has
have had what which who whom whose when where why how many much it its this that these those as about into
than then there their they he she his her him i you we me my your our us them can could would should will may
might not no if so such der die das ein eine einer eines einem den dem des und oder ist sind waren wer wann wo
wie warum welche welcher welches im am auf zu von mit für bei nach aus el la los las un una de del y o es son
fue en por para con que qué quién cuándo dónde cómo cuál cuánto cuántos le les du et ou est sont dans par pour
avec qui quoi quand où comment pourquoi quel quelle combien и в на с по к из от за о что кто где когда как
какой какая какие сколько это
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())


def terms_in(text: str) -> list[str]:
    """Lower-cased terms in order, repeated as they are. A single character of such a script is a term of its own."""
    lowered = text.lower()
    if not _ANY_DENSE.search(lowered):
        return _WORD.findall(lowered)
    found: list[str] = []
    for run in _RUN.findall(lowered):
        if _ANY_DENSE.match(run) and len(run) > 1:
            found.extend(run[at : at + 2] for at in range(len(run) - 1))
        else:
            found.append(run)
    return found


def content_terms(query: str) -> list[str]:
    """Distinct terms of a query that say what it is about, in order."""
    return [term for term in dict.fromkeys(terms_in(query)) if term not in STOP_WORDS]
