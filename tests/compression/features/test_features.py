"""Words of any script, matches, layout and the table of features."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compression.features.layout import Columns, Group, Runs, lay_out
from compression.features.matching import (
    Query,
    apart,
    asked,
    count_grams,
    count_words,
    kind_of,
    longest_runs,
    pairs_kept,
    terms_of,
)
from compression.features.matrix import extract, prepare
from compression.features.words import fold, grams, lex, split, split_many, stem
from compression.scorers.lexical import LexicalScorer
from compression.segmentation import segment
from compression.source.units import Segmentation, Unit

TEXT = "The Rhine flows north. It passes Cologne.\n\nThe Danube flows east. It passes Vienna and Budapest."


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The U.S. court, 1998", ["The", "U", "S", "court", "1998"]),
        ("snake_case", ["snake", "case"]),
        ("Mädchen naïve", ["Mädchen", "naïve"]),
        ("नमस्ते दुनिया", ["नमस्ते", "दुनिया"]),
        ("東京都へ", ["東京", "京都", "都へ", "へ"]),
        ("NFL中文", ["NFL", "中文", "文"]),
        ("ภาษาไทย", ["ภาษา", "าษาไ", "ษาไท", "าไทย", "ไทย", "ทย", "ย"]),
        ("مرحبًا", ["مرحبًا"]),
        ("", []),
        (" ,.!\n", []),
    ],
)
def test_text_of_any_script_is_split_into_words(text: str, words: list[str]) -> None:
    found, starts = split(text)
    assert found == words
    assert all(text.startswith(word, start) for word, start in zip(found, starts, strict=True))


def test_a_run_of_letters_without_end_is_cut_into_words_of_bounded_length() -> None:
    found, _ = split("a" * 100_000)
    assert max(map(len, found)) <= 48
    assert sum(map(len, found)) == 100_000


@pytest.mark.parametrize(
    ("word", "folded"),
    [("Über", "uber"), ("ÉCOLE", "ecole"), ("हिन्दी", "हिन्दी"), ("مَدرسة", "مدرسه"), ("ΑΘΉΝΑ", "αθηνα")],
)
def test_folding_takes_case_and_diacritics_and_leaves_vowel_signs(word: str, folded: str) -> None:
    assert fold(word) == folded


def test_inflected_forms_share_grams_and_plurals_share_a_stem() -> None:
    assert stem("rivers") == stem("river")
    assert stem("glass") == "glass"
    assert len(set(grams("verteidigung")) & set(grams("verteidigungen"))) >= 10


def test_words_know_their_units_and_what_lies_between_units_has_none() -> None:
    text = segment(TEXT)
    words = lex(text)
    for unit in range(len(text.units)):
        own = words.ids[words.first[unit] : words.last[unit]]
        assert [words.spellings[number] for number in own] == split(text.text(unit))[0]


# What words are made of and what parts them: letters, marks, scripts without spaces, what is outside the first plane.
CHARACTERS = "aZ0 _.\n\u2013\u00e9\u0301\u093f\u4e2d\u3042\u0e44\u0e17\u0645\u064b\uffff\U0001f600\U00020000"


@given(st.text(st.sampled_from(CHARACTERS), max_size=200), st.integers(1, 60))
@settings(max_examples=100)
def test_a_long_text_is_split_as_its_pattern_says(text: str, repeats: int) -> None:
    for source in (text, f"{text} {'ab' * repeats} plain words and more of them", "é".join([text] * 2)):
        found, starts = split_many(source)
        assert (found, starts.tolist()) == split(source)


def test_a_text_of_several_stretches_is_split_as_one_is() -> None:
    source = "no_space.中文 and spaces, " * 20_000
    segmentation = Segmentation(source, (Unit(0, len(source), "line", 0, 0),), ())
    words = lex(segmentation)
    assert [words.spellings[number] for number in words.ids] == split(source)[0]


@given(st.lists(st.integers(0, 70), max_size=30), st.integers(0, 1 << 30))
@settings(max_examples=80)
def test_runs_are_reduced_as_one_by_one(lengths: list[int], seed: int) -> None:
    sizes = np.array(lengths, np.int64)
    rows = np.random.default_rng(seed).integers(-9, 9, (int(sizes.sum()), 3)).astype(np.float32)
    ends = np.cumsum(sizes)
    for operation in (np.add, np.maximum):
        expected = [
            operation.reduce(rows[end - size : end], axis=0) if size else np.zeros(3)
            for size, end in zip(sizes, ends, strict=True)
        ]
        assert (Runs.of(sizes).reduce(operation, rows) == np.reshape(expected, (-1, 3))).all()
        backwards = np.arange(len(rows))[::-1]
        assert (
            Runs.of(sizes).reduce(operation, rows[::-1], backwards) == np.reshape(expected, (-1, 3))
        ).all()


def test_a_neighbour_of_another_document_is_not_smoothed_in() -> None:
    layout = lay_out(segment("# A\none two three.\n\n# B\nfour five six.\n"))
    values = np.zeros(len(layout.documents.of), np.float32)
    values[layout.documents.of == 0] = 1
    for reach in (1, 5, 50):
        assert (layout.smooth(values, reach) == values).all()
    assert layout.beside(values, 1)[layout.documents.last[0] - 1] == 0


@given(st.lists(st.floats(-5, 5, width=32), min_size=1, max_size=60), st.integers(1, 30))
@settings(max_examples=50)
def test_smoothing_stays_between_the_least_and_the_greatest(values: list[float], reach: int) -> None:
    layout = lay_out(segment("\n".join(f"A: turn {number}" for number in range(len(values)))))
    row = np.resize(np.array(values, np.float32), len(layout.documents.of))
    smooth = layout.smooth(row, reach)
    assert smooth.min() >= row.min() - 1e-4
    assert smooth.max() <= row.max() + 1e-4


def test_runs_of_equal_labels_are_groups() -> None:
    group = Group.by(np.array([4, 4, 7, 7, 7, 1]))
    assert group.first.tolist() == [0, 2, 5]
    assert group.of.tolist() == [0, 0, 1, 1, 1, 2]
    assert group.total(np.ones((6, 1), np.float32)).ravel().tolist() == [2, 3, 1]


def test_matching_counts_terms_runs_and_pairs_by_unit() -> None:
    text = segment(TEXT)
    words, layout, query = lex(text), lay_out(text), Query.of("Where does the Danube flow east?")
    terms = terms_of(words, query)
    counts = count_words(words, query, terms, layout)
    danube = next(number for number in range(len(text.units)) if "Danube" in text.text(number))
    assert counts.unit[danube, query.terms.index("danube")] == 1
    weight = np.ones(len(query.terms), np.float32)
    # "flows" is stemmed to "flow": four words of the unit are the query's, one after the other.
    assert longest_runs(words, terms, weight)[danube] == 4
    assert pairs_kept(words, query)[danube] > 0
    assert apart(counts.unit, layout.documents, weight).argmax() == danube
    assert count_grams(words, query, layout).unit.sum(axis=1).argmax() == danube


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        ("who wrote it", "person"),
        ("Wie viele Punkte?", "number"),
        ("在哪里出生", "place"),
        ("когда родился", "time"),
        ("What did they discuss?", "discussion"),
    ],
)
def test_questions_say_what_kind_of_answer_they_ask_for(question: str, kind: str) -> None:
    assert asked(Query.of(question))[kind] == 1.0


def test_words_are_kinds_of_answer() -> None:
    assert [kind_of(word, word.lower()) for word in ("42", "1998", "Vienna", "river", "seven")] == [
        0,
        1,
        2,
        3,
        0,
    ]


def test_relative_columns_do_not_change_with_the_scale_of_a_score() -> None:
    rows = np.array([[1.0, 3.0, 2.0, 3.0]], np.float32)
    tables = []
    for factor in (1, 100):
        columns = Columns(4)
        columns.add_relative(["x"], rows * factor)
        tables.append(columns.table())
    assert np.allclose(*tables)
    assert tables[0][1, 0] == 1.0


@pytest.mark.parametrize("query", ["", "Danube", "?!", "zzz", "a " * 3000, "\x00", "谁"])
@pytest.mark.parametrize("source", [TEXT, "x", "-", "\n\n", '{"a": 1}', "A: b\nC: d\n", "漢字", "…" * 50])
def test_features_are_finite_whatever_is_asked_of_whatever_text(query: str, source: str) -> None:
    text = segment(source)
    if text.units:
        embeddings = LexicalScorer.load().embeddings
        names, table = extract(query, prepare(text, embeddings), embeddings)
        assert table.shape == (len(text.units), len(names))
        assert len(set(names)) == len(names)
        assert np.isfinite(table).all()
        assert np.abs(table).max() < 20


@pytest.mark.parametrize(
    ("word", "stemmed"),
    [
        ("المدرسة", "مدرس"),
        ("والمدرسة", "مدرس"),
        ("بالمدرسه", "مدرس"),
        ("كتاب", "كتاب"),
        ("cats", "cat"),
        ("glass", "glass"),
    ],
)
def test_a_stem_is_a_word_without_what_its_grammar_adds(word: str, stemmed: str) -> None:
    assert stem(fold(word)) == stemmed


@given(st.text(alphabet="وابتثجحخدذرزسشصضطظعغفقكلمنهيةى", min_size=1, max_size=12))
def test_no_arabic_word_is_stemmed_to_nothing(word: str) -> None:
    assert len(stem(fold(word))) >= min(2, len(fold(word)))
