"""Long papers, tickets and chats made from passages: the same question in the shapes that callers send."""

import json
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from benchmarks.evaluation.case import Case, Need, Span
from benchmarks.evaluation.datasets import Passage
from benchmarks.evaluation.suites.quizzes import Quiz, quizzes, sentences
from benchmarks.evaluation.suites.traces import as_json, places

PARAGRAPHS = 48
ENTRIES = 30
EXCHANGES = 12
SECTIONS = (
    "Introduction", "Related Work", "Background", "Data", "Method", "Experiments", "Results", "Analysis",
    "Discussion", "Limitations", "Conclusion", "Appendix",
)  # fmt: skip
STAFF = ("Dana (Support)", "Mike R.", "ops-bot", "Priya Nair", "customer", "T. Olsen")
NOISE = (
    "Status changed from Open to Pending.", "SLA timer paused.", "Assigned to second line.",
    "Thanks, I will get back to you.", "Any news on this?", "Attachment: screenshot.png (132 KB)",
)  # fmt: skip
ENTRY_STYLES = (
    "{date:%Y-%m-%d %H:%M} - {who}: {text}",
    "[{date:%d/%m/%Y %H:%M}] {who} wrote:\n{text}\n",
    "On {date:%a, %d %b %Y at %H:%M}, {who} wrote:\n{text}\n",
)


def paper_cases(rows: Sequence[Passage], suite: str) -> Iterator[Case]:
    """Numbered sections of four paragraphs under a title; a paragraph is a passage, without its own title."""
    for quiz in quizzes(rows, suite, PARAGRAPHS):
        parts = [
            "A Survey of Assorted Matters",
            "Abstract",
            "We bring together what is known of many things.",
        ]
        for at, passage in enumerate(quiz.passages):
            if at % 4 == 0:
                parts.append(f"{at // 4 + 1} {SECTIONS[at // 4 % len(SECTIONS)]}")
            parts.append(" ".join(sentences(passage.text)))
        yield _case(quiz, suite, "\n\n".join(parts))


def ticket_cases(rows: Sequence[Passage], suite: str) -> Iterator[Case]:
    """A ticket's dated entries by several people, with the noise of a tracker between."""
    for quiz in quizzes(rows, suite, ENTRIES):
        rng, style = quiz.rng, quiz.rng.choice(ENTRY_STYLES)
        date = datetime(2024, 1, 1, 9) + timedelta(days=rng.randrange(300))
        entries = []
        for passage in quiz.passages:
            for text in [" ".join(sentences(passage.text)), *rng.sample(NOISE, rng.randint(0, 2))]:
                date += timedelta(minutes=rng.randint(1, 2000))
                entries.append(style.format(date=date, who=rng.choice(STAFF), text=text))
        yield _case(quiz, suite, f"Ticket #{4000 + quiz.number}\n\n" + "\n".join(entries))


def chat_cases(rows: Sequence[Passage], suite: str) -> Iterator[Case]:
    """Messages as JSON: searches with their results, then the question; what answers it is in an earlier result."""
    for quiz in quizzes(rows, suite, EXCHANGES):
        messages: list[dict[str, Any]] = []
        for number, passage in enumerate(quiz.passages):
            messages += _exchange(number, passage, is_text=quiz.rng.random() < 0.5)
        messages.append({"role": "user", "content": quiz.gold.question})
        yield _case(quiz, suite, as_json(messages))


def _exchange(number: int, passage: Passage, *, is_text: bool) -> list[dict[str, Any]]:
    text = " ".join(sentences(passage.text))
    asked = json.dumps({"query": passage.title})
    call = {"id": f"call_{number}", "type": "function", "function": {"name": "search", "arguments": asked}}
    found = text if is_text else json.dumps({"results": [{"title": passage.title, "text": text}]})
    return [
        {"role": "user", "content": f"Look up {passage.title}, please."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call_{number}", "content": found},
        {"role": "assistant", "content": f"I have read about {passage.title}. What would you like to know?"},
    ]


def _case(quiz: Quiz, suite: str, context: str) -> Case:
    whole: Span = (0, len(context))
    need = Need(quiz.sentence, places(context, quiz.sentence, [whole]))
    gold = " ".join(sentences(quiz.gold.text))
    around = places(context, gold, [whole])
    return Case(
        suite, f"{suite}-{quiz.number}", quiz.gold.question, context, around, around[0], quiz.gold.answers,
        need.spans, quiz.is_held_out, (need,),
    )  # fmt: skip
