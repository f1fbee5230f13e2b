"""Conversations to train on come in an order that the seed fixes, and each of them teaches a reply."""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.training.chat_models.conversations import FINISHING, ConversationStream
from benchmarks.training.chat_models.prose import FILES, read_corpus

PASSAGE = {
    "answers": ["the singer"],
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


def test_replies_in_json_can_be_parsed_and_are_short(folder: Path) -> None:
    stream = itertools.islice(ConversationStream(read_corpus(folder), 3, FINISHING), 300)
    replies = [conversation[-1].content for conversation in stream]
    objects = [json.loads(reply) for reply in replies if reply.startswith("{")]
    assert objects
    assert all(isinstance(each, dict) and len(each) <= 5 for each in objects)
