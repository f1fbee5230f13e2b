"""Long dialogues of two speakers over dated sessions, made from passages: what is asked was said in some turns."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from benchmarks.evaluation import datasets
from benchmarks.evaluation.case import Case, Need, join, seeded, spans_of
from benchmarks.evaluation.datasets import Passage
from benchmarks.evaluation.suites.hops import HopRow, is_asked
from benchmarks.evaluation.suites.quizzes import Quiz, quizzes, sentences

PASSAGES = 60
ROWS = 4  # rows of several hops whose documents one dialogue talks about
NAMES = ("Ann", "Ben", "Carla", "Deniz", "Eva", "Farid", "Grace", "Hugo", "Ines", "Jonas", "Keiko", "Liam")
OPENINGS = (
    "Hey {other}, have you heard about {title}?", "I have been reading about {title} lately.",
    "{other}, do you remember {title}?", "By the way, {title}!",
)  # fmt: skip
SMALL_TALK = (
    "Wow, I had no idea!", "That is so interesting, {other}.", "Thanks for telling me.", "Really? Tell me more.",
    "Ha, you always know such things.", "How was your week?", "Let's talk again soon!", "Good question.",
)  # fmt: skip
STYLES = (
    ("DATE: {date:%d %B, %Y} at {date:%H:%M}", "{name}: {text}"),
    ("Session {number} ({date:%d %B %Y})", "{name}: {text}"),
    ("", "[{date:%Y-%m-%d %H:%M}] {name}: {text}"),
    ("--- {date:%A, %d %B %Y} ---", '{name} said, "{text}"'),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Turn:
    """What one of the two said, or a session's head (speaker -1)."""

    speaker: int
    text: str
    is_evidence: bool = False


def passage_cases(rows: Sequence[Passage], suite: str) -> Iterator[Case]:
    """A question whose answer was said in one turn."""
    for quiz in quizzes(rows, suite, PASSAGES):
        topics = [
            (passage.title, [(text, _answers(quiz, passage, text)) for text in sentences(passage.text)])
            for passage in quiz.passages
        ]
        yield _case(
            suite, quiz.number, quiz.gold.question, quiz.gold.answers, topics, quiz.is_held_out, quiz.rng
        )


def _answers(quiz: Quiz, passage: Passage, text: str) -> bool:
    return passage is quiz.gold and text == quiz.sentence


def hop_cases(rows: Sequence[HopRow], suite: str) -> Iterator[Case]:
    """A question whose evidence was said in two turns or more; other rows' documents are talked about as well."""
    for number, row in enumerate(rows):
        rng = seeded(f"{suite} {row.question}")
        other_rows = rng.sample([other for other in rows if other is not row], min(ROWS - 1, len(rows) - 1))
        documents = [(row, document) for document in row.documents]
        documents += [(other, document) for other in other_rows for document in other.documents]
        rng.shuffle(documents)
        needed = {" ".join(text.split()) for text in row.needed}
        topics = [
            (document.title, [(text, owner is row and text in needed) for text in sentences(document.text)])
            for owner, document in documents
        ]
        case = _case(
            suite, number, row.question, row.answers if is_asked(row) else (), topics,
            datasets.is_held_out(row.question), rng,
        )  # fmt: skip
        # A sentence that is cut differently here than in the file has no turn of its own.
        if len(case.needs) == len(needed):
            yield case


Topic = tuple[str, list[tuple[str, bool]]]


def _case(
    suite: str, number: int, query: str, answers: tuple[str, ...], topics: Sequence[Topic], is_held_out: bool,
    rng: random.Random,
) -> Case:  # fmt: skip
    names = rng.sample(NAMES, 2)
    turns = [turn for topic in topics for turn in _talk(topic, names, rng)]
    lines, said = _written(turns, names, rng)
    context, spans = join(lines, "\n")
    places = [
        (start + context[start:end].index(text), text)
        for (start, end), text in zip(spans, said, strict=True)
        if text
    ]
    needs = tuple(Need(text, ((at, at + len(text)),)) for at, text in places)
    return Case(
        suite, f"{suite}-{number}", query, context, spans, None, answers, spans_of(needs), is_held_out, needs
    )


def _talk(topic: Topic, names: Sequence[str], rng: random.Random) -> Iterator[Turn]:
    """One topic, a sentence a turn; the speakers take turns, with small talk between."""
    title, told = topic
    speaker = rng.randrange(2)
    if rng.random() < 0.6:
        yield Turn(speaker, rng.choice(OPENINGS).format(other=names[1 - speaker], title=title))
        speaker = 1 - speaker
    for text, is_evidence in told:
        yield Turn(speaker, text, is_evidence)
        speaker = 1 - speaker
        if rng.random() < 0.3:
            yield Turn(speaker, rng.choice(SMALL_TALK).format(other=names[1 - speaker]))
            speaker = 1 - speaker


def _written(turns: Sequence[Turn], names: Sequence[str], rng: random.Random) -> tuple[list[str], list[str]]:
    """Lines, and the evidence in each of them ("" for none); sessions of about twenty turns on dated days."""
    head, line = rng.choice(STYLES)
    date = datetime(2023, 1, 1, 9) + timedelta(days=rng.randrange(300), minutes=rng.randrange(600))
    lines: list[str] = []
    said: list[str] = []
    left = number = 0
    for turn in turns:
        if not left:
            left, number = rng.randint(12, 30), number + 1
            date += timedelta(days=rng.randint(1, 20), minutes=rng.randint(-200, 200))
            lines += [head.format(date=date, number=number)] if head else []
            said += [""] if head else []
        date += timedelta(minutes=rng.randint(0, 3))
        left -= 1
        lines.append(line.format(date=date, name=names[turn.speaker], text=turn.text))
        said.append(turn.text if turn.is_evidence else "")
    return lines, said
