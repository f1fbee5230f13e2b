"""What the table and the scorer that come with pith make of texts: vectors, scores, tokens, refusals."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compression.pipeline.errors import RefusedRequest, TextTooLong
from compression.retrieval.job import Answer, RetrievalJob
from compression.retrieval.plain import PlainRetrieval, side_by_side
from compression.scorers.lexical import LexicalScorer
from compression.source.token_counter import TokenizerCounter
from compression.workers.messages import Retrieve, Retrieved, done_of, job_of, packed

TOKENIZER = Path(__file__).parents[3] / "models/embedded/tokenizer"
LONG = 8192
ANY_TEXT = st.text(min_size=1, max_size=60)


@cache
def made() -> PlainRetrieval:
    return PlainRetrieval(LexicalScorer.load(), TokenizerCounter.from_file(TOKENIZER, name="pith-mini"))


# Not of a property test, which would print it.
@pytest.fixture
def work() -> PlainRetrieval:
    return made()


def rows(answer: Answer) -> np.ndarray:
    return np.frombuffer(answer.data, "<f4").reshape(-1, answer.width)


@given(texts=st.lists(ANY_TEXT, min_size=1, max_size=6))
def test_any_texts_have_vectors_of_length_one_whoever_is_beside_them(texts: list[str]) -> None:
    work = made()
    found = rows(work.do(RetrievalJob("embed", tuple(texts), LONG)))
    assert found.shape == (len(texts), 128)
    assert np.allclose((found**2).sum(axis=1), 1, atol=1e-4)
    alone = rows(work.do(RetrievalJob("embed", (texts[0],), LONG)))
    assert np.allclose(alone[0], found[0], atol=1e-5)


@given(texts=st.lists(ANY_TEXT, min_size=1, max_size=5), query=ANY_TEXT)
def test_any_texts_have_scores_between_0_and_1(texts: list[str], query: str) -> None:
    scores = rows(made().do(RetrievalJob("relate", tuple(texts), LONG, queries=(query,), cut=LONG)))
    assert scores.shape == (len(texts), 1) and (scores >= 0).all() and (scores <= 1).all()


def test_fewer_dimensions_are_the_first_ones_at_length_one(work: PlainRetrieval) -> None:
    whole = rows(work.do(RetrievalJob("embed", ("A cat sat.",), LONG)))[0]
    cut = rows(work.do(RetrievalJob("embed", ("A cat sat.",), LONG, dimensions=16)))[0]
    assert np.allclose(cut, whole[:16] / np.linalg.norm(whole[:16]), atol=1e-5)
    with pytest.raises(RefusedRequest, match="dimensions: must be at most 128, not 129"):
        work.do(RetrievalJob("embed", ("a",), LONG, dimensions=129))


def test_tokens_are_counted_as_they_are_given_and_read_as_text(work: PlainRetrieval) -> None:
    ids = tuple(work.counter._tokenizer.encode("The cat sat on the mat.").ids)
    answer = work.do(RetrievalJob("embed", ("The cat sat on the mat.", ids), LONG))
    assert np.allclose(rows(answer)[0], rows(answer)[1], atol=1e-5) and answer.tokens == 2 * len(ids)
    with pytest.raises(RefusedRequest, match=r"input\.1: token 8192 is not a token of pith-mini"):
        work.do(RetrievalJob("embed", ("a", (8192,)), LONG))


def test_a_query_counts_with_each_text_and_a_cut_text_as_far_as_it_is_read(work: PlainRetrieval) -> None:
    count = work.counter.count
    query, texts = "Who made the pump?", ("Ada made the pump.", "word " * 100)
    job = RetrievalJob("relate", texts, LONG, queries=(query,), cut=10)
    assert work.do(job).tokens == 2 * count(query) + count(texts[0]) + 10
    counted = work.do(RetrievalJob("relate", texts, LONG, queries=(query,), cut=10, only_counts=True))
    assert counted == Answer(work.do(job).tokens)
    pairs = RetrievalJob("relate", texts, LONG, queries=(query, "x"))
    assert work.do(pairs).tokens == sum(map(count, (query, "x", *texts)))


def test_what_is_too_long_is_refused_by_its_place(work: PlainRetrieval) -> None:
    long = "word " * 100
    for job, field in (
        (RetrievalJob("embed", (long,), 50), "input"),
        (RetrievalJob("embed", ("a", long), 50), "input.1"),
        (RetrievalJob("relate", ("a",), 50, queries=(long,), cut=50), "query"),
        (RetrievalJob("relate", ("a", long), 50, queries=("q",)), "documents.1"),
    ):
        with pytest.raises(TextTooLong, match="maximum context length is 50 tokens") as caught:
            work.do(job)
        assert caught.value.field == field


@given(text=ANY_TEXT, tokens=st.integers(1, 20))
def test_the_beginning_of_a_text_has_as_many_tokens_as_were_asked_for(text: str, tokens: int) -> None:
    repeated, counter = text * 20, made().counter
    beginning = counter.beginning(repeated, tokens)
    assert repeated.startswith(beginning)
    # The last token may be one of several that its character is made of.
    assert counter.count(beginning) < tokens + 4 or beginning == repeated


def test_a_text_that_looks_like_several_documents_is_one(work: PlainRetrieval) -> None:
    inner = "# One\n\nA cat sat.\n\n# Two\n\nA dog ran.\n"
    text, owners = side_by_side([inner, "", "A sentence. And another one."])
    assert len(text.documents) == 2 and set(owners) == {0, 2}
    assert [text.text(at) for at, owner in enumerate(owners) if owner == 2] == [
        "A sentence.",
        "And another one.",
    ]


def test_texts_of_many_lines_have_no_more_units_together_than_one_may_have() -> None:
    text, owners = side_by_side(["a\n" * 400] * 200)
    assert len(text.units) <= 32_768 and set(owners) == set(range(200))


@given(
    texts=st.lists(
        ANY_TEXT | st.lists(st.integers(0, 2**32 - 1), min_size=1).map(tuple), min_size=1, max_size=4
    ),
    queries=st.lists(ANY_TEXT, max_size=2),
    cut=st.none() | st.integers(1, 9),
)
def test_a_job_and_its_answer_go_to_a_worker_and_back(
    texts: list[str | tuple[int, ...]], queries: list[str], cut: int | None
) -> None:
    job = RetrievalJob("embed", tuple(texts), 7, tuple(queries), cut, cut, only_counts=bool(queries))
    assert job_of(packed(Retrieve(job))) == Retrieve(job)
    answer = Answer(9, 2, b"\0" * 8)
    assert done_of(packed(Retrieved(answer))) == Retrieved(answer)
