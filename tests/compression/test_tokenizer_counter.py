from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from compression import tokenizer_counter
from compression.tokenizer_counter import TokenizerCounter, counts_in_pieces

# What tokenizers treat in ways of their own: spaces of every kind, line ends, contractions, marks, special tokens.
AWKWARD_PIECES = [
    *[" ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u200b", "\u2028", "\x1c", "\x85", "\ufeff", "\0"],
    *["a", "The", "'s", "n't", "7", "1,000", "...", "—", "é", "e\u0301", "黑豹", "。", "🚀", "👨‍👩", "ß"],
    *["<|im_start|>", "</tool_call>"],
]
AWKWARD = st.lists(st.sampled_from(AWKWARD_PIECES), max_size=30).map("".join)


@pytest.fixture(scope="module")
def whole() -> Tokenizer:
    file = Path(__file__).parents[2] / "models" / "embedded" / "tokenizer" / "tokenizer.json"
    return Tokenizer.from_file(str(file))


@given(text=AWKWARD | st.text(max_size=100))
def test_pieces_count_as_the_whole_does(counter: TokenizerCounter, whole: Tokenizer, text: str) -> None:
    expected = len(whole.encode(text, add_special_tokens=False).ids)
    assert counter.count(text) == expected
    assert counter.count_many([text, "", text]) == [expected, 0, expected]


def test_a_tokenizer_that_looks_across_spaces_is_not_counted_in_pieces() -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    counter = TokenizerCounter(tokenizer, name="whole text")
    assert counter.count("a b c") == 1
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    assert TokenizerCounter(tokenizer, name="split").count("a b c") == 3
    spaced = {
        "added_tokens": [{"lstrip": True, "rstrip": False, "content": "x"}],
        "pre_tokenizer": {"type": "ByteLevel"},
    }
    assert not counts_in_pieces(spaced)


def test_a_full_cache_starts_anew_and_counts_on(
    counter: TokenizerCounter, whole: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenizer_counter, "_CACHED_PIECES", 3)
    for text in ("one two three four", "five six one", "one two three four"):
        assert counter.count(text) == len(whole.encode(text, add_special_tokens=False).ids)


def test_a_missing_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no tokenizer at .*tokenizer\.json"):
        TokenizerCounter.from_file(tmp_path, name="x")
