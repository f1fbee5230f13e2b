from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from compression.source import token_counter
from compression.source.token_counter import Cuts, TokenizerCounter, cuts_of, split_pieces, stretches

# What tokenizers treat in ways of their own: spaces of every kind, line ends, contractions, marks, special tokens.
AWKWARD_PIECES = [
    *[" ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u200b", "\u2028", "\x1c", "\x85", "\ufeff", "\0"],
    *["a", "The", "'s", "n't", "7", "1,000", "...", "—", "é", "e\u0301", "黑豹", "。", "🚀", "👨‍👩", "ß"],
    *["<|im_start|>", "</tool_call>"],
]
AWKWARD = st.lists(st.sampled_from(AWKWARD_PIECES), max_size=30).map("".join)


@pytest.fixture(scope="module")
def whole() -> Tokenizer:
    file = Path(__file__).parents[3] / "models" / "embedded" / "tokenizer" / "tokenizer.json"
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
    assert cuts_of(spaced) is None


@given(text=AWKWARD | st.text(max_size=60), after_lines=st.booleans(), longest=st.integers(1, 40))
def test_a_long_text_is_cut_only_where_it_may_be(text: str, after_lines: bool, longest: int) -> None:
    cuts = Cuts(after_lines=after_lines)
    parts = list(stretches(text, longest, cuts))
    assert "".join(parts) == text
    pieces = [piece for part in parts for piece in split_pieces([part], cuts)[0]]
    assert [piece for piece in pieces if piece] == [piece for piece in split_pieces([text], cuts)[0] if piece]


@given(texts=st.lists(AWKWARD, max_size=8))
def test_texts_that_hold_every_separator_are_counted_too(
    counter: TokenizerCounter, whole: Tokenizer, texts: list[str]
) -> None:
    marked = [token_counter.SEPARATORS + text for text in texts]
    expected = [len(whole.encode(text, add_special_tokens=False).ids) for text in marked]
    assert counter.count_many(marked) == expected
    cuts = Cuts(after_lines=False)
    for some in (texts, marked):
        pieces, of_texts = split_pieces(some, cuts)
        assert ["".join(pieces[first:last]) for first, last in pairwise(of_texts.tolist())] == some


def test_a_text_of_one_word_a_line_is_read_a_line_at_a_time(whole: Tokenizer) -> None:
    cuts = cuts_of(json.loads(whole.to_str()))
    assert cuts is not None
    assert split_pieces(["one\ntwo\r\n\nthree four"], cuts)[0] == ["one\n", "two\r\n\n", "three", " four"]


def test_a_full_cache_starts_anew_and_counts_on(
    counter: TokenizerCounter, whole: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_counter, "_CACHED_PIECES", 3)
    for text in ("one two three four", "five six one", "one two three four"):
        assert counter.count(text) == len(whole.encode(text, add_special_tokens=False).ids)


def test_a_missing_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no tokenizer at .*tokenizer\.json"):
        TokenizerCounter.from_file(tmp_path, name="x")
