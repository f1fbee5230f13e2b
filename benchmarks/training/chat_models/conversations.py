"""Makes an endless, seeded stream of conversations out of the corpus: questions and answers, and what was said."""

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from benchmarks.training.chat_models.prose import (
    MANY_DIGITS,
    SENTENCE_END,
    Corpus,
    clean_speech,
    count_digits,
    first_sentences,
)

SYSTEM_PROMPTS = (
    "You are a helpful assistant.",
    "You are a helpful assistant. Answer briefly.",
    "Answer the question in a few sentences.",
    "You are a friendly guide who knows history, music and sport.",
    "Be concise.",
    "You answer questions about the meeting.",
)
JSON_ASKS = ("Answer as JSON with", "Return a JSON object with the keys", "JSON, please:", "Reply in JSON:")
# Percentages of the draws. The finishing lessons come last and are few; they teach JSON, which is easily learnt.
SCHOOL = {
    **{"passage": 32, "paragraph": 16, "query": 22, "meeting": 8},
    **{"small_talk": 14, "loop": 6, "german": 1, "chinese": 1},
}
FINISHING = {"passage": 32, "paragraph": 16, "query": 22, "small_talk": 12, "loop": 4, "fields": 14}
FIELDS = (
    *("name", "title", "city", "country", "age", "year", "count", "total", "price", "score", "tags"),
    *("items", "summary", "answer", "reason", "text", "body", "first_name", "address", "email", "colour"),
    *("kind", "status", "active", "valid", "id", "value", "key", "date", "place", "people", "steps"),
)


@dataclass(frozen=True, slots=True)
class Turn:
    """One message, and which of its tokens the model is to learn.

    All; none; only the end; or the rest, once its first token is given.
    """

    role: str
    content: str
    learn: Literal["all", "none", "end", "rest"] = "all"


Conversation = list[Turn]


class ConversationStream:
    """Draws conversations in seeded order, without end.

    Each kind has its share of the draws; within a kind every row is used once before any is used again.
    """

    def __init__(self, corpus: Corpus, seed: int, shares: Mapping[str, int] = SCHOOL) -> None:
        self._random = random.Random(seed)
        queries = [
            (meeting, query) for meeting in corpus.meetings for query in meeting["specific_query_list"]
        ]
        kinds: dict[str, tuple[Callable[[Any], Conversation], Sequence[Any]]] = {
            "passage": (self._from_passage, corpus.passages),
            "paragraph": (self._from_paragraph, corpus.paragraphs["en"]),
            "query": (self._from_query, queries),
            "meeting": (self._from_meeting, corpus.meetings),
            "small_talk": (self._from_small_talk, corpus.small_talk),
            "loop": (self._from_loop, corpus.passages),
            "german": (self._from_paragraph, corpus.paragraphs["de"]),
            "chinese": (self._from_paragraph, corpus.paragraphs["zh"]),
            "fields": (self._from_fields, corpus.passages),
        }
        self._shares = [shares.get(name, 0) for name in kinds]
        self._decks = [self._deck(make, rows) for make, rows in kinds.values()]

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
        sentences = SENTENCE_END.split(row["context"])
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

    def _from_fields(self, row: dict[str, Any]) -> Conversation:
        """A short JSON object, so that a reply held to a schema knows when to close its strings.

        Its first token is not learnt, or such a small model would answer anything in JSON.
        """
        names = self._random.sample(FIELDS, self._random.randint(1, 5))
        words = [row["title"], row["answers"][0], *row["title"].split(), *row["answers"][0].split()]
        reply = json.dumps({name: self._value(words, depth=0) for name in names}, ensure_ascii=False)
        ask = f"{row['question']} {self._random.choice(JSON_ASKS)} {', '.join(names)}."
        return [Turn("user", ask, "none"), Turn("assistant", reply, "rest")]

    def _value(self, words: Sequence[str], depth: int) -> object:
        kind = self._random.choices(("text", "number", "truth", "list", "object"), (10, 5, 2, 3, 1))[0]
        if kind == "number":
            return self._random.choice((self._random.randrange(100), self._random.randrange(1000) / 10))
        if kind == "truth":
            return self._random.choice((True, False, None))
        if kind == "text" or depth > 1:
            return self._random.choice(words)
        inner = [self._value(words, depth + 1) for _ in range(self._random.randint(0, 3))]
        if kind == "list":
            return inner
        return dict(zip(self._random.sample(FIELDS, len(inner)), inner, strict=True))

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
