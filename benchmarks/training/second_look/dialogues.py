"""Long dialogues and papers made of passages: the same facts in turns of dated sessions, or under section headings."""

import random
from collections.abc import Iterator, Sequence

from benchmarks.evaluation.case import Case, Span, join, seeded
from benchmarks.training.rendering import Quiz
from compression.segmentation import segment

NAMES = (
    "Alice", "Ben", "Caroline", "David", "Emma", "Farid", "Grace", "Hiro", "Ines", "Jon", "Katya", "Liam", "Mei",
    "Nadia", "Omar", "Priya", "Quentin", "Rosa", "Sam", "Tomas", "Uma", "Victor", "Wen", "Yusuf",
)  # fmt: skip
FILLERS = (
    "That's great!", "Wow, really?", "Oh, I did not know that.", "Thanks for telling me!", "How are you doing?",
    "Hey, long time no see!", "I totally agree.", "What happened then?", "Sounds good to me.", "Haha, no way.",
    "Tell me more about it.", "Good to hear from you.", "I'm so happy for you.", "Let me think about that.",
)  # fmt: skip
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
HEADINGS = (
    "Introduction", "Related Work", "Background", "Method", "Model", "Data", "Experiments", "Results", "Analysis",
    "Discussion", "Conclusion", "Limitations",
)  # fmt: skip


def dialogue(quiz: Quiz) -> Case:
    """The quiz's passages as a dialogue of two people: a sentence or two a turn, a few passages a session."""
    rng = seeded(f"dialogue {quiz.name}")
    speakers = rng.sample(NAMES, 2)
    style = rng.randrange(4)
    lines: list[str] = []
    gold: list[tuple[int, bool]] = []
    number, left = 0, 0
    for at, (title, text) in enumerate(quiz.documents):
        if not left:
            number, left = number + 1, rng.randint(2, 4)
            lines += ["", _session(number, rng, style)]
        left -= 1
        for turn in _turns(f"{title}: {text}" if title and rng.random() < 0.3 else text, rng):
            if rng.random() < 0.25:
                lines.append(f"{_speaker(speakers, len(lines), style)} {rng.choice(FILLERS)}")
            gold.append((len(lines), at == quiz.gold))
            lines.append(f"{_speaker(speakers, len(lines), style)} {turn}")
    # Without the empty line before the first session.
    context, spans = join(lines[1:], "\n")
    mine = [spans[line - 1] for line, is_gold in gold if is_gold]
    return _case(quiz, "dialogue", context, mine)


def paper(quiz: Quiz) -> Case:
    """The quiz's passages as paragraphs under numbered headings, without titles of their own."""
    rng = seeded(f"paper {quiz.name}")
    parts: list[str] = []
    gold = -1
    left = section = 0
    for at, (_, text) in enumerate(quiz.documents):
        if not left:
            section, left = section + 1, rng.randint(1, 4)
            parts.append(f"{'#' * rng.choice((1, 2))} {section} {rng.choice(HEADINGS)}")
        left -= 1
        gold = len(parts) if at == quiz.gold else gold
        parts.append(text)
    context, spans = join(parts, "\n\n")
    return _case(quiz, "paper", context, spans[gold : gold + 1] if gold >= 0 else [])


def _case(quiz: Quiz, suite: str, context: str, gold: Sequence[Span]) -> Case:
    whole = (gold[0][0], gold[-1][1]) if gold else None
    name = f"{suite}-{quiz.name}"
    return Case(
        suite, name, quiz.question, context, tuple(gold), whole, quiz.answers, is_held_out=quiz.is_held_out
    )


def _turns(text: str, rng: random.Random) -> Iterator[str]:
    sentences = segment(text.replace("\n", " ")).texts()
    at = 0
    while at < len(sentences):
        count = rng.choice((1, 1, 2))
        yield " ".join(sentences[at : at + count])
        at += count


def _session(number: int, rng: random.Random, style: int) -> str:
    date = f"{rng.randint(1, 28)} {rng.choice(MONTHS)} {rng.randint(2021, 2024)}"
    hour = f"{rng.randint(1, 12)}:{rng.randint(0, 59):02d} {rng.choice(('am', 'pm'))}"
    return (
        f"Session {number} ({hour} on {date})",
        f"[{date}]",
        f"--- {date}, {hour} ---",
        f"DATE: {hour} on {date}",
    )[style]


def _speaker(speakers: Sequence[str], line: int, style: int) -> str:
    return f"[{speakers[line % 2]}]" if style == 3 else f"{speakers[line % 2]}:"
