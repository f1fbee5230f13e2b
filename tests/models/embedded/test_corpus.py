"""Training text is cleaned of transcript marks and drawn in an order that the seed fixes."""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from models.embedded.corpus import (
    FILES,
    ConversationStream,
    CorpusMissing,
    clean_speech,
    first_sentences,
    read_corpus,
)

PASSAGE = {
    "question": "who sang it",
    "title": "It",
    "text": "It is a song. It was sung (by two) in 1971 twice.",
}
PARAGRAPH = {"context": "A first one. A second one.", "qas": [{"question": "Which?", "answer": "second"}]}
MEETING = {
    "meeting_transcripts": [
        {
            "speaker": "A",
            "content": f"I think {{disfmarker}} that plan {i} is a very good one , and we should do it now .",
        }
        for i in range(9)
    ],
    "specific_query_list": [
        {"query": "What was said ?", "answer": "A agreed .", "relevant_text_span": [["0", "3"]]}
    ],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A training folder with one invented row of each kind."""
    rows: dict[str, Any] = {"nq_open_oracle": PASSAGE, "qmsum_train": MEETING}
    for name in FILES:
        with gzip.open(tmp_path / f"{name}.jsonl.gz", "wt", encoding="utf-8") as file:
            file.write(json.dumps(rows.get(name, PARAGRAPH)) + "\n")
    return tmp_path


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusMissing, match=r"nq_open_oracle\.jsonl\.gz is not there"):
        read_corpus(tmp_path)


@pytest.mark.parametrize(
    ("spoken", "written"),
    [
        ("So {disfmarker} it 's not , uh , mine .", "So it's not mine."),
        ("I I did n't , um , see it ( at all ) .", "I didn't see it (at all)."),
        ("well - known {vocalsound}", "Well-known"),
        ("{gap}", ""),
    ],
)
def test_speech_is_written_as_prose(spoken: str, written: str) -> None:
    assert clean_speech(spoken) == written


def test_a_reply_is_whole_sentences_without_asides_or_dates() -> None:
    assert first_sentences(PASSAGE["text"], 400) == "It is a song."
    assert first_sentences("One is here. Two is there.", 5) == "One is here."


def test_the_seed_fixes_the_order(folder: Path) -> None:
    corpus = read_corpus(folder)
    first, again, other = (list(itertools.islice(ConversationStream(corpus, seed), 40)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_every_conversation_ends_with_a_reply(folder: Path) -> None:
    for conversation in itertools.islice(ConversationStream(read_corpus(folder), 3), 200):
        assert [turn.role for turn in conversation][-2:] == ["user", "assistant"]
        assert conversation[-1].content


def test_a_loop_teaches_its_end_alone(folder: Path) -> None:
    stream = itertools.islice(ConversationStream(read_corpus(folder), 3), 300)
    loops = [conversation for conversation in stream if conversation[-1].learn == "end"]
    assert loops
    assert all(turn.learn == "none" for conversation in loops for turn in conversation[:-1])
