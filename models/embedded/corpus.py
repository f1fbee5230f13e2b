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
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Turn:
    """One message, and which of its tokens the model is to learn: all, none, or only where it ends."""

    role: str
    content: str
    learn: Literal["all", "none", "end"] = "all"


Conversation = list[Turn]

MANY_DIGITS = 4
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
_HESITATION = re.compile(r"(?:, )?\b(?:uh|um|mm-hmm|hmm|mm|er)\b,?", re.IGNORECASE)
_STUTTER = re.compile(r"\b(\w+)(?:,? \1\b)+", re.IGNORECASE)
_ASIDE = re.compile(r" ?\([^()]*\)")
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
    text = re.sub(r"\s+", " ", _MARK.sub("", text))
    text = _SPACE_BEFORE.sub(r"\1", _HYPHEN.sub(r"\1-\2", text))
    text = re.sub(r"\(\s+", "(", re.sub(r"([,.])(?:\s*[,.])+", r"\1", text))
    text = _STUTTER.sub(r"\1", re.sub(r"\s+", " ", _HESITATION.sub("", text))).strip(" ,")
    return text[:1].upper() + text[1:]


def first_sentences(text: str, limit: int) -> str:
    """Whole sentences from the start, up to `limit` characters; at least one.

    Asides in parentheses go, and so do later sentences full of digits: a small model learns nothing from
    dates but to write more of them.
    """
    kept = ""
    for sentence in _SENTENCE_END.split(" ".join(_ASIDE.sub("", text).split())):
        if kept and len(kept) + len(sentence) > limit:
            break
        if not kept or count_digits(sentence) < MANY_DIGITS:
            kept = f"{kept} {sentence}".strip()
    return kept


def count_digits(text: str) -> int:
    return sum(character.isdigit() for character in text)


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
            (32, self._from_passage, corpus.passages),
            (16, self._from_paragraph, corpus.paragraphs["en"]),
            (22, self._from_query, queries),
            (8, self._from_meeting, corpus.meetings),
            (14, self._from_small_talk, corpus.small_talk),
            (6, self._from_loop, corpus.passages),
            (1, self._from_paragraph, corpus.paragraphs["de"]),
            (1, self._from_paragraph, corpus.paragraphs["zh"]),
        ]
        self._shares = [share for share, _, _ in kinds]
        self._decks = [self._deck(make, rows) for _, make, rows in kinds]

    def __iter__(self) -> Iterator[Conversation]:
        while True:
            conversation = next(self._random.choices(self._decks, self._shares)[0])
            dates = count_digits(conversation[-1].content) >= MANY_DIGITS
            if dates and self._random.random() < 0.8:
                continue
            if self._random.random() < 0.25:
                conversation = [Turn("system", self._random.choice(SYSTEM_PROMPTS), "none"), *conversation]
            yield conversation

    def _deck(self, make: Callable[[Any], Conversation], rows: Sequence[Any]) -> Iterator[Conversation]:
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
        return _exchange(self._random.choice(asks), first_sentences(row["text"], limit))

    def _from_paragraph(self, row: dict[str, Any]) -> Conversation:
        """A question on the paragraph, sometimes after the paragraph; the answer is its sentence."""
        pair = self._random.choice(row["qas"])
        sentences = _SENTENCE_END.split(row["context"])
        holding = [sentence for sentence in sentences if pair["answer"] in sentence]
        reply = holding[0] if holding and len(sentences) > 1 else row["context"]
        if self._random.random() < 0.5:
            return [Turn("user", f"{row['context']}\n\n{pair['question']}", "none"), Turn("assistant", reply)]
        return _exchange(pair["question"], reply)

    def _from_query(self, row: tuple[dict[str, Any], dict[str, Any]]) -> Conversation:
        """A question on a meeting, sometimes after a piece of what was said there."""
        meeting, query = row
        ask, reply = clean_speech(query["query"]), clean_speech(query["answer"])
        reply = first_sentences(reply, self._random.choice((200, 350, 500)))
        if self._random.random() < 0.15 and query["relevant_text_span"]:
            first, last = (int(bound) for bound in query["relevant_text_span"][0])
            turns = meeting["meeting_transcripts"][first : min(last, first + 30) + 1]
            said = "\n".join(f"{turn['speaker']}: {clean_speech(turn['content'])}" for turn in turns)
            said = said[: self._random.choice((1000, 3000, 6000))]
            return [Turn("user", f"{said}\n\n{ask}", "none"), Turn("assistant", reply)]
        return _exchange(ask, reply)

    def _from_meeting(self, row: dict[str, Any]) -> Conversation:
        """Consecutive longer turns of a meeting, as if two people had spoken."""
        turns = [clean_speech(turn["content"]) for turn in row["meeting_transcripts"]]
        told = [first_sentences(turn, 350) for turn in turns if len(turn) > 80] or turns
        count = 2 * self._random.choice((1, 1, 2, 3))
        start = self._random.randrange(max(1, len(told) - count))
        roles = ("user", "assistant")
        return [Turn(roles[i % 2], text) for i, text in enumerate(told[start : start + count])]

    def _from_small_talk(self, row: dict[str, Any]) -> Conversation:
        return _exchange(self._random.choice(row["ask"]), row["reply"])

    def _from_loop(self, row: dict[str, Any]) -> Conversation:
        """A reply that goes round in circles, of which only the end is learnt: to stop there."""
        words = first_sentences(row["text"], 200).split()
        length = self._random.choice((1, 2, 3, 4, 6, 8))
        start = self._random.randrange(max(1, len(words) - length))
        circle = words[start : start + length] * self._random.choice((3, 4, 5))
        reply = " ".join(words[:start] + circle)
        return [Turn("user", row["question"], "none"), Turn("assistant", reply, "end")]


def _exchange(ask: str, reply: str) -> Conversation:
    return [Turn("user", ask), Turn("assistant", reply)]
