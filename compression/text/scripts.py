"""The one list of scripts, by their ranges of code points: which are written without spaces, and which a text is in."""

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
    """How many letters of `text` are in none of `scripts`, and how many letters it has."""
    # ASCII letters are Latin: where Latin is asked for, little of most texts remains to be searched.
    looked_at = "".join(_NOT_ASCII.findall(text)) if "latin" in scripts else text
    outside = sum(map(len, _outside(frozenset(scripts)).findall(looked_at)))
    return (outside, sum(map(len, _LETTERS.findall(text)))) if outside else (0, 0)


@lru_cache(maxsize=32)
def _outside(scripts: frozenset[str]) -> re.Pattern[str]:
    check_scripts(scripts)
    return re.compile(f"[^\\W{_OF_NONE}{''.join(RANGES[name] for name in sorted(scripts))}]+")
