# Letters of other scripts are what this is about.
# ruff: noqa: RUF001
"""One list says which letters belong to which script, and which scripts are written without spaces."""

from __future__ import annotations

import re

import pytest

from compression.features.words import split
from compression.source.text import DENSE, IDEOGRAPHS, UNSPACED, letters_outside, terms_in

WITHOUT_SPACES = {
    "thai": "ภาษาไทย",
    "lao": "ພາສາລາວ",
    "khmer": "ភាសាខ្មែរ",
    "myanmar": "မြန်မာ",
    "myanmar, extended-A": "ꩠꩡꩢ",
    "myanmar, extended-B": "ꧠꧡꧢ",
    "han": "委员会",
    "han, extension A": "㐀㐁",
    "han, extension B": "𠮷𠀀",
    "han, zero": "〇",
    "han, compatibility": "豈",
    "kana, hiragana": "ひらがな",
    "kana, katakana": "カタカナ",
    "kana, half-width": "ﾃﾞｰﾀ",
    "kana, phonetic": "ㇰㇱ",
    "kana, repeat marks": "〱〲",
}


@pytest.mark.parametrize("name", WITHOUT_SPACES)
def test_a_script_without_spaces_is_known_as_such_and_by_its_name(name: str) -> None:
    text, script = WITHOUT_SPACES[name], name.split(",")[0]
    assert re.fullmatch(f"[{DENSE}]+", text.translate(dict.fromkeys(map(ord, "\u17d2\u103a"))))
    assert letters_outside(text, {script}) == (0, 0)
    outside, letters = letters_outside(text, {"latin"})
    assert outside == letters > 0


@pytest.mark.parametrize("text", ["བོད་སྐད", "한국어 문장", "latin", "Ελληνικά", "हिन्दी", "ქართული", "አማርኛ"])
def test_what_is_written_with_spaces_or_marks_between_syllables_is_not_among_them(text: str) -> None:
    assert not re.search(f"[{DENSE}]", text)


def test_ideographs_and_the_unspaced_alphabets_are_two_lists_without_a_common_letter() -> None:
    letters = [chr(code) for code in range(0x40000) if not 0xD800 <= code < 0xE000]
    ideographs = {letter for letter in letters if re.match(f"[{IDEOGRAPHS}]", letter)}
    assert not ideographs & {letter for letter in letters if re.match(f"[{UNSPACED}]", letter)}


@pytest.mark.parametrize("text", ["ภาษาไทย", "委员会开会", "ꧠꧡꧢꧣ", "ひらがな"])
def test_terms_and_features_cut_a_text_without_spaces_into_overlapping_pieces(text: str) -> None:
    assert len(terms_in(text)) == len(text) - 1
    assert len(split(text)[0]) == len(text)


def test_a_mark_parts_the_syllables_of_tibetan_as_a_space_does() -> None:
    assert len(terms_in("བོད་སྐད")) == len(terms_in("བོད སྐད"))
