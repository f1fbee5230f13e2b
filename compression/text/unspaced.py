"""The letters of scripts that are written without spaces, as ranges for a regular expression: there a word is what a
tokenizer or a pair of letters makes of it, not what lies between spaces."""

from __future__ import annotations

# Han with its radicals and marks, kana with their wide, half-width and phonetic forms, bopomofo. Planes 2 and 3 are
# Han's, assigned or not. No punctuation: brackets and full stops part words here as elsewhere.
IDEOGRAPHS = (
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3040-\u30ff\u3100-\u312f\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
# Thai, Lao, Myanmar, Khmer.
UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u19e0-\u19ff\uaa60-\uaa7f"
DENSE = IDEOGRAPHS + UNSPACED
