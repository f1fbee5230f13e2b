"""The tokenizer gives any text back exactly, and cuts as current open models do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.embedded.install import ARTEFACTS

tokenizers = pytest.importorskip("tokenizers")
TOKENIZER = tokenizers.Tokenizer.from_file(str(ARTEFACTS / "tokenizer" / "tokenizer.json"))
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>")


def cut(text: str) -> list[str]:
    encoding = TOKENIZER.encode(text)
    return [TOKENIZER.decode([token], skip_special_tokens=False) for token in encoding.ids]


def check_round_trip(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text).ids, skip_special_tokens=False) == text


@given(st.text())
def test_any_text_comes_back(text: str) -> None:
    check_round_trip(text)


ODD = (" ", "\u00a0", "\u200d", "\x00", "\ufeff")


@given(st.lists(st.sampled_from([*SPECIAL, *ODD, "\n", "\r\n", "\t", "0", "é", "e\u0301", "漢", "👩"])))
def test_text_with_special_tokens_and_odd_spaces_comes_back(parts: list[str]) -> None:
    check_round_trip("".join(parts))


@given(st.text(alphabet="0123456789", min_size=1))
def test_each_digit_is_a_token(digits: str) -> None:
    assert cut(digits) == list(digits)


@pytest.mark.parametrize("token", SPECIAL)
def test_a_special_token_is_one_token(token: str) -> None:
    assert len(TOKENIZER.encode(f"a{token}b").ids) == 3


def test_indentation_does_not_cost_a_token_a_space() -> None:
    assert len(TOKENIZER.encode("\n" + " " * 8 + '"question"').ids) <= 5


def test_a_space_belongs_to_the_word_after_it() -> None:
    assert cut("The history of the world") == ["The", " history", " of", " the", " world"]


@pytest.mark.parametrize(
    ("text", "most_tokens_a_character"),
    [
        ("The committee discussed the plan and agreed that the cost was too high.", 0.27),
        ("Die Stadt liegt an einem Fluss und hat eine lange Geschichte.", 0.40),
        ("这座城市有很长的历史。", 1.2),
    ],
)
def test_text_is_packed_well(text: str, most_tokens_a_character: float) -> None:
    assert len(TOKENIZER.encode(text).ids) / len(text) <= most_tokens_a_character


def test_the_vocabulary_is_full_and_a_multiple_of_64() -> None:
    assert TOKENIZER.get_vocab_size() == 8192
