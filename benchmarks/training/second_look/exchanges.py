"""Agents' searches and tickets made of passages: the answer is in a tool's result, or in an entry."""

import json
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from benchmarks.evaluation.case import Case, Need, seeded
from benchmarks.evaluation.metrics import holds_answer
from benchmarks.evaluation.suites.traces import places, written
from benchmarks.training.rendering import Quiz
from compression.segmentation import segment

TOOLS = ("web_search", "lookup", "read_page", "find_document", "kb.query", "fetch")
ASKED = ("Have a look at {}.", "What do we know of {}?", "Next: {}", "Can you check {}?", "{}")
SAID = (
    "Done.",
    "I have it.",
    "That is all I found on {}.",
    "Shall I go on?",
    "Noted: {}.",
    "Anything else on {}?",
)
FOUND: tuple[Callable[[str, str, random.Random], str], ...] = (
    lambda title, text, rng: text,
    lambda title, text, rng: f"{title}\n{text}",
    lambda title, text, rng: json.dumps(
        {"hits": [{"name": title, "body": text}], "took_ms": rng.randint(3, 900)}
    ),
    lambda title, text, rng: json.dumps(
        {"title": title, "url": f"/wiki/{rng.randint(1, 99999)}", "content": text}
    ),
    lambda title, text, rng: json.dumps([{"id": rng.randint(1, 9999), "page": title, "snippet": text}]),
)
WRITERS = ("agent Kim", "A. Moreau", "customer", "Second Level", "j.novak", "Bot")
CHATTER = (
    "Priority set to high.", "Merged with another request.", "Please see above.", "Thanks for the quick answer!",
    "Reopened by the customer.", "See attachment log.txt", "Waiting for a reply.", "Kind regards",
)  # fmt: skip
HEADS = (
    "{date:%d.%m.%Y, %H:%M} {who}:\n{text}\n", "{who} ({date:%d %b %Y %H:%M}): {text}",
    "--- Comment by {who} on {date:%Y-%m-%d %H:%M} ---\n{text}\n", "[{date:%Y-%m-%d}] {who}\n{text}\n",
)  # fmt: skip


def chat(quiz: Quiz) -> Case:
    """One tool result a passage, then the question: as JSON, or as lines with roles."""
    rng = seeded(f"chat {quiz.name}")
    messages: list[dict[str, Any]] = []
    if rng.random() < 0.3:
        messages.append({"role": "system", "content": "You are a careful assistant. Use the tools."})
    for number, (title, text) in enumerate(quiz.documents):
        messages += _exchange(number, title or text[:30], text, rng)
    if rng.random() < 0.7:
        messages.append({"role": "user", "content": quiz.question})
    context, _ = written(messages, is_json=rng.random() < 0.7)
    return _case(quiz, "chat", context)


def _exchange(number: int, title: str, text: str, rng: random.Random) -> list[dict[str, Any]]:
    tool, name = rng.choice(TOOLS), f"call_{number:03d}{rng.randint(10, 99)}"
    call = {"id": name, "type": "function", "function": {"name": tool, "arguments": json.dumps({"q": title})}}
    messages: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": name, "content": rng.choice(FOUND)(title, text, rng)},
    ]
    if rng.random() < 0.6:
        messages.insert(0, {"role": "user", "content": rng.choice(ASKED).format(title)})
    if rng.random() < 0.6:
        messages.append({"role": "assistant", "content": rng.choice(SAID).format(title)})
    return messages


def ticket(quiz: Quiz) -> Case:
    """One entry a passage, with date and author, and small talk between them."""
    rng = seeded(f"ticket {quiz.name}")
    head, date = rng.choice(HEADS), datetime(2023, 2, 3, 8) + timedelta(days=rng.randrange(400))
    entries = []
    for title, text in quiz.documents:
        body = f"{title}: {text}" if title and rng.random() < 0.3 else text
        for each in (body, *rng.sample(CHATTER, rng.randint(0, 2))):
            date += timedelta(minutes=rng.randint(1, 3000))
            entries.append(head.format(date=date, who=rng.choice(WRITERS), text=each))
    return _case(quiz, "ticket", f"Case {rng.randint(100, 99999)}\nStatus: open\n\n" + "\n".join(entries))


def _case(quiz: Quiz, suite: str, context: str) -> Case:
    """Any sentence of the gold passage that holds an answer will do."""
    text = quiz.documents[quiz.gold][1]
    sentences = segment(text).texts()
    holding = [each for each in sentences if holds_answer(each, quiz.answers)] or sentences
    spans = tuple(sorted({span for each in holding for span in places(context, each, ((0, len(context)),))}))
    needs = (Need(quiz.answers[0], spans),) if spans else ()
    return Case(
        suite, f"{suite}-{quiz.name}", quiz.question, context, (), answers=quiz.answers, evidence=spans,
        is_held_out=quiz.is_held_out, needs=needs,
    )  # fmt: skip
