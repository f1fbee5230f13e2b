"""Turns a folder of public data into an endless, seeded stream of conversations to train on.

The text stays in that folder: the repository holds only what was learnt from it (see NOTICE).
"""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

Conversation = list[dict[str, str]]

FILES = ("nq_open_oracle", "qmsum_train", "xquad_en", "xquad_de", "xquad_zh")
SYSTEM_PROMPTS = (
    "You are a helpful assistant.",
    "You are a helpful assistant. Answer briefly.",
    "Answer the question in a few sentences.",
    "You are a friendly guide who knows history, music and sport.",
    "Be concise.",
    "You answer questions about the meeting.",
)
_MARK = re.compile(r"\{\w+\}|<\w+>")
_SPACE_BEFORE = re.compile(r" +([,.?!;:%)]|'(?:s|t|re|ve|m|ll|d)\b|n't\b)")
_HYPHEN = re.compile(r"(\w) - (\w)")
_PRONUNCIATION = re.compile(r" ?\([^()]*(?:/[^()]*/|listen)[^()]*\)")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(])")


class CorpusMissing(Exception):
    """The training folder, or a file of it, is not there."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """Rows of each source, as they were read."""

    passages: tuple[dict[str, Any], ...]
    meetings: tuple[dict[str, Any], ...]
    paragraphs: dict[str, tuple[dict[str, Any], ...]]
    small_talk: tuple[dict[str, Any], ...]


def read_corpus(folder: Path) -> Corpus:
    """Raises `CorpusMissing`, naming the file, where one of `FILES` cannot be read."""
    rows = {name: _read_rows(folder / f"{name}.jsonl.gz") for name in FILES}
    talk = resources.files(__package__).joinpath("small_talk.jsonl").read_text(encoding="utf-8")
    return Corpus(
        passages=rows["nq_open_oracle"],
        meetings=rows["qmsum_train"],
        paragraphs={lang: rows[f"xquad_{lang}"] for lang in ("en", "de", "zh")},
        small_talk=tuple(json.loads(line) for line in talk.splitlines()),
    )


def _read_rows(path: Path) -> tuple[dict[str, Any], ...]:
    if not path.is_file():
        raise CorpusMissing(f"training data: {path} is not there")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return tuple(json.loads(line) for line in lines)


def clean_speech(text: str) -> str:
    """A transcript's spaced punctuation and `{disfmarker}` marks, made into ordinary prose."""
    text = _MARK.sub("", text)
    text = re.sub(r"\s+", " ", text)
    text = _SPACE_BEFORE.sub(r"\1", _HYPHEN.sub(r"\1-\2", text))
    text = re.sub(r",(?:\s*,)+", ",", text)
    text = re.sub(r"\(\s+", "(", text)
    return text.strip(" ,")


def first_sentences(text: str, limit: int) -> str:
    """Whole sentences from the start, up to `limit` characters; at least one."""
    kept = ""
    for sentence in _SENTENCE_END.split(" ".join(text.split())):
        if kept and len(kept) + len(sentence) > limit:
            break
        kept = f"{kept} {sentence}".strip()
    return kept


def english_prose(corpus: Corpus) -> Iterator[str]:
    """Running English text, for the tokenizer."""
    for row in corpus.passages:
        yield f"{row['title']}\n\n{row['text']}"
    for paragraph in corpus.paragraphs["en"]:
        yield paragraph["context"]
    for meeting in corpus.meetings:
        for query in meeting["specific_query_list"]:
            yield clean_speech(query["answer"])
        yield from (clean_speech(turn["content"]) for turn in meeting["meeting_transcripts"][::4])


class ConversationStream:
    """Draws conversations in seeded order, without end.

    Each kind has its share of the draws; within a kind every row is used once before any is used again.
    """

    def __init__(self, corpus: Corpus, seed: int) -> None:
        self._random = random.Random(seed)
        queries = [
            (meeting, query) for meeting in corpus.meetings for query in meeting["specific_query_list"]
        ]
        kinds: list[tuple[int, Callable[[Any], Conversation], Sequence[Any]]] = [
            (34, self._from_passage, corpus.passages),
            (15, self._from_paragraph, corpus.paragraphs["en"]),
            (20, self._from_query, queries),
            (12, self._from_meeting, corpus.meetings),
            (16, self._from_small_talk, corpus.small_talk),
            (2, self._from_paragraph, corpus.paragraphs["de"]),
            (1, self._from_paragraph, corpus.paragraphs["zh"]),
        ]
        self._shares = [share for share, _, _ in kinds]
        self._draws = [self._deck(make, rows) for _, make, rows in kinds]

    def __iter__(self) -> Iterator[Conversation]:
        while True:
            conversation = next(self._random.choices(self._draws, self._shares)[0])
            if self._random.random() < 0.25:
                system = {"role": "system", "content": self._random.choice(SYSTEM_PROMPTS)}
                conversation = [system, *conversation]
            yield conversation

    def _deck(
        self, make: Callable[[Any], Conversation], rows: Sequence[Any]
    ) -> Iterator[Conversation]:
        order = list(range(len(rows)))
        while True:
            self._random.shuffle(order)
            for index in order:
                yield make(rows[index])

    def _from_passage(self, row: dict[str, Any]) -> Conversation:
        question: str = row["question"]
        asks = [
            question,
            f"{question[0].upper()}{question[1:]}?",
            f"{question[0].upper()}{question[1:]}?",
            f"Tell me about {row['title']}.",
            f"What is {row['title']}?",
        ]
        limit = self._random.choice((150, 300, 450))
        return _exchange(self._random.choice(asks), first_sentences(_PRONUNCIATION.sub("", row["text"]), limit))

    def _from_paragraph(self, row: dict[str, Any]) -> Conversation:
        pair = self._random.choice(row["qas"])
        sentences = _SENTENCE_END.split(row["context"])
        holding = [sentence for sentence in sentences if pair["answer"] in sentence]
        reply = holding[0] if holding and len(sentences) > 1 else row["context"]
        if self._random.random() < 0.3:
            return _exchange(f"{row['context']}\n\n{pair['question']}", reply)
        return _exchange(pair["question"], reply)

    def _from_query(self, row: tuple[dict[str, Any], dict[str, Any]]) -> Conversation:
        meeting, query = row
        ask, reply = clean_speech(query["query"]), clean_speech(query["answer"])
        reply = first_sentences(reply, self._random.choice((250, 400, 600)))
        if self._random.random() < 0.2 and query["relevant_text_span"]:
            first, last = (int(bound) for bound in query["relevant_text_span"][0])
            turns = meeting["meeting_transcripts"][first : min(last, first + 30) + 1]
            said = "\n".join(f"{turn['speaker']}: {clean_speech(turn['content'])}" for turn in turns)
            ask = f"{said[: self._random.choice((1000, 3000, 6000))]}\n\n{ask}"
        return _exchange(ask, reply)

    def _from_meeting(self, row: dict[str, Any]) -> Conversation:
        turns = [clean_speech(turn["content"]) for turn in row["meeting_transcripts"]]
        told = [first_sentences(turn, 350) for turn in turns if len(turn) > 60] or turns
        count = 2 * self._random.choice((1, 1, 2, 3))
        start = self._random.randrange(max(1, len(told) - count))
        roles = ("user", "assistant")
        chosen = told[start : start + count]
        return [{"role": roles[i % 2], "content": text} for i, text in enumerate(chosen)]

    def _from_small_talk(self, row: dict[str, Any]) -> Conversation:
        return _exchange(self._random.choice(row["ask"]), row["reply"])


def _exchange(ask: str, reply: str) -> Conversation:
    return [{"role": "user", "content": ask}, {"role": "assistant", "content": reply}]
