"""No text has more tokens than its bytes times what was proven of its tokenizer, for each kind of tokenizer."""

from __future__ import annotations

import json
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from serve.money.prompt_bound import tokens_per_byte

EMBEDDED = Path(__file__).parents[3] / "models/embedded/tokenizer/tokenizer.json"
BYTES = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
FALLBACK = {f"<0x{number:02X}>": number for number in range(256)} | {"▁": 256, "a": 257}


def byte_level(normalizer: Any = None, *, prefix: bool = False) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(vocab=BYTES, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    return tokenizer


def sentencepiece(
    normalizer: Any = None, pre_tokenizer: Any = None, *, knows_space: bool = True
) -> Tokenizer:
    vocabulary = FALLBACK if knows_space else {k: v for k, v in FALLBACK.items() if k != "▁"}
    vocabulary = {piece: number for number, piece in enumerate(vocabulary)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True, fuse_unk=True))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    return tokenizer


def llama() -> Any:
    return normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])


def word_piece(normalizer: Any) -> Tokenizer:
    vocabulary = {"[UNK]": 0, "a": 1, "##a": 2, "i": 3, "##i": 4, "̇": 5, "##̇": 6}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=1000))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def unigram() -> Tokenizer:
    pieces = [
        ("<unk>", 0.0),
        ("▁", -1.0),
        ("a", -2.0),
        *((name, -9.0) for name in FALLBACK if name[0] == "<"),
    ]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return tokenizer


KINDS: dict[str, tuple[Tokenizer, int]] = {
    "the embedded models'": (Tokenizer.from_file(str(EMBEDDED)), 1),
    "byte-level": (byte_level(), 1),
    "byte-level NFC": (byte_level(normalizers.NFC()), 3),
    "byte-level NFD": (byte_level(normalizers.NFD()), 3),
    "byte-level NFKC": (byte_level(normalizers.NFKC()), 11),
    "byte-level NFKD": (byte_level(normalizers.NFKD()), 11),
    "byte-level lower case": (byte_level(normalizers.Lowercase()), 2),
    "byte-level with a space before": (byte_level(prefix=True), 2),
    "sentencepiece": (sentencepiece(llama()), 2),
    "sentencepiece that lacks the space": (sentencepiece(llama(), knows_space=False), 12),
    "sentencepiece by metaspace": (sentencepiece(None, pre_tokenizers.Metaspace()), 2),
    "unigram": (unigram(), 2),
    "word pieces": (word_piece(normalizers.BertNormalizer()), 12),
    "replacing": (byte_level(normalizers.Replace("ab", "abcdefgh")), 4),
}
EXPANDING = "\U0001d160ﷺΐİȺ̈́…㍿\U0001f248ªﬃ ab\t\n"
TEXTS = st.text(max_size=60) | st.text(alphabet=EXPANDING, max_size=60)


@pytest.mark.parametrize("kind", KINDS)
@given(text=TEXTS)
@settings(max_examples=60)
def test_no_text_has_more_tokens_than_proven(kind: str, text: str) -> None:
    tokenizer, factor = KINDS[kind]
    assert tokens_per_byte(json.loads(tokenizer.to_str())) == factor
    assert len(tokenizer.encode(text, add_special_tokens=False).ids) <= factor * len(text.encode())


def test_bytes_alone_are_no_bound_where_a_normalizer_expands() -> None:
    for kind, text in (("byte-level NFC", "\U0001d160"), ("byte-level NFKC", "ﷺ"), ("sentencepiece", "a")):
        tokens = len(KINDS[kind][0].encode(text, add_special_tokens=False).ids)
        assert tokens > len(text.encode()), kind


def test_no_letter_grows_more_than_the_forms_are_trusted_to() -> None:
    letters = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    for form, factor in (("NFC", 3), ("NFD", 3), ("NFKC", 11), ("NFKD", 11)):
        for letter in letters:
            grown = unicodedata.normalize(form, letter)  # type: ignore[arg-type]
            assert len(grown.encode()) <= factor * len(letter.encode()), (form, letter)
    assert all(len(letter.lower().encode()) <= 2 * len(letter.encode()) for letter in letters)


@pytest.mark.parametrize(
    "definition",
    [
        {"model": {"type": "BPE"}, "normalizer": {"type": "Precompiled", "precompiled_charsmap": ""}},
        {"model": {"type": "BPE"}, "normalizer": {"type": "Sequence", "normalizers": [{"type": "New"}]}},
        {
            "model": {"type": "BPE"},
            "normalizer": {"type": "Replace", "pattern": {"Regex": "a*"}, "content": "bb"},
        },
        {
            "model": {"type": "BPE"},
            "normalizer": {"type": "Replace", "pattern": {"String": ""}, "content": "b"},
        },
        {"model": {"type": "BPE"}, "pre_tokenizer": {"type": "New"}},
        {"model": {"type": "New"}},
        {"model": {"type": "BPE", "byte_fallback": True, "end_of_word_suffix": "</w>"}},
        {},
    ],
)
def test_of_what_is_not_known_nothing_is_proven(definition: dict[str, Any]) -> None:
    assert tokens_per_byte(definition) is None
