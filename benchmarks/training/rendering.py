"""Contexts in many formats, so that what is learned depends on no one way of writing and no one script."""

import random
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from benchmarks.evaluation.case import Case, join

Dress = Callable[[int, str, str], str]

DRESSES: tuple[Dress, ...] = (
    lambda number, title, text: f"Document [{number}] (Title: {title}) {text}",
    lambda number, title, text: f"Document [{number}](Title: {title}) {text}",
    lambda number, title, text: f"{title}\n{text}",
    lambda number, title, text: f"# {title}\n{text}",
    lambda number, title, text: f"## {title}\n\n{text}",
    lambda number, title, text: f"[{number}] {title}\n{text}",
    lambda number, title, text: f"Title: {title}\n{text}",
    lambda number, title, text: f"Passage {number}: {title}\n{text}",
    lambda number, title, text: f"{title}: {text}",
    lambda number, title, text: text,
)
PLAIN: tuple[Dress, ...] = (
    lambda number, title, text: text,
    lambda number, title, text: text,
    lambda number, title, text: text,
    lambda number, title, text: f"Document [{number}]: {text}",
    lambda number, title, text: f"[{number}] {text}",
)
LATIN = "abcdefghijklmnopqrstuvwxyz"
# One letter for one letter: words keep their lengths and recurrences, and the embeddings know none of them.
SCRIPTS = {
    "cyrillic": "абцдефгхийклмнопярстувшжыз",
    "greek": "αβψδεφγηιξκλμνοπθρστυωςχζά",
    "arabic": "ابتدهفقحيجكلمنوبثرسطعغشخزذ",
    "devanagari": "अबचदएफगहइजकलमनओपखरसतउवशघयझ",
    "thai": "กขคงจฉชซฌญฎฏฐฑฒณดตถทธนบปผฝ",
    # An ideograph replaces a piece of a word, so this script has no alphabet.
    "han": "",
}
PIECE = 3
FIRST_IDEOGRAPH, IDEOGRAPHS = 0x4E00, 3000
WORD = re.compile(r"\w+")
STOPS = str.maketrans({".": "。", ",": "，", "?": "？", "!": "！", ";": "；", ":": "："})  # noqa: RUF001


@dataclass(frozen=True, slots=True)
class Quiz:
    """A question and the documents it is asked of, before they are written into one context."""

    suite: str
    name: str
    question: str
    answers: tuple[str, ...]
    documents: tuple[tuple[str, str], ...]
    gold: int
    is_held_out: bool


def render(quiz: Quiz, dress: Dress, separator: str) -> Case:
    parts = [dress(number, title, text) for number, (title, text) in enumerate(quiz.documents, 1)]
    context, spans = join(parts, separator)
    gold = spans[quiz.gold] if quiz.gold >= 0 else None
    return Case(
        quiz.suite, quiz.name, quiz.question, context, spans, gold, quiz.answers, is_held_out=quiz.is_held_out
    )


def dressed(quiz: Quiz, rng: random.Random) -> Case:
    """The quiz in some dress; the question as people type it, with or without its mark."""
    has_titles = any(title for title, _ in quiz.documents)
    question = quiz.question
    if question.islower() and rng.random() < 0.5:
        question = question[0].upper() + question[1:] + "?"
    separator = "\n" if not has_titles and rng.random() < 0.2 else "\n\n"
    return render(replace(quiz, question=question), rng.choice(DRESSES if has_titles else PLAIN), separator)


def ideographs(word: str) -> str:
    """An ideograph for every three letters: words that begin alike are written alike, and numbers stay."""
    if word.isdecimal():
        return word
    pieces = (word[at : at + PIECE].lower() for at in range(0, len(word), PIECE))
    return "".join(chr(FIRST_IDEOGRAPH + zlib.crc32(piece.encode()) % IDEOGRAPHS) for piece in pieces)


def cover_of(script: str) -> Callable[[str], str]:
    """What writes a text in letters of another script; in Thai and in ideographs also without spaces."""
    letters = SCRIPTS[script]
    table = str.maketrans(LATIN + LATIN.upper(), letters + letters.upper()[: len(LATIN)]) if letters else {}

    def cover(text: str) -> str:
        if script == "thai":
            text = text.replace(". ", "\0").replace(" ", "").replace("\0", " ")
        if script == "han":
            text = WORD.sub(lambda word: ideographs(word.group()), text).translate(STOPS).replace(" ", "")
        return text.translate(table)

    return cover


def disguise(quiz: Quiz, script: str) -> Quiz:
    """The quiz in letters of another script."""
    cover = cover_of(script)
    documents = tuple((cover(title), cover(text)) for title, text in quiz.documents)
    answers = tuple(cover(answer) for answer in quiz.answers)
    return replace(
        quiz,
        suite=f"{quiz.suite}_{script}",
        question=cover(quiz.question),
        answers=answers,
        documents=documents,
    )
