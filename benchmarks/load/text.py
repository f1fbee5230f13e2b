"""Contexts that nobody owns: Markdown of made-up sentences, the same for every run."""

from __future__ import annotations

import random

QUERY = "Which harbour did the committee choose for the new ferry, and in what year?"
NAMES = ("Ada", "Bergen", "Geneva", "Kofi", "Lisbon", "Marta", "Oslo", "Priya", "Riga", "Tomas")
NOUNS = (
    "committee",
    "harbour",
    "ferry",
    "contract",
    "river",
    "budget",
    "museum",
    "bridge",
    "school",
    "engine",
)
VERBS = (
    "chose",
    "repaired",
    "measured",
    "opened",
    "sold",
    "described",
    "visited",
    "delayed",
    "painted",
    "found",
)
LONGEST_PARAGRAPH = 8


def sentence(rng: random.Random) -> str:
    end = rng.choice(("", f" in {rng.randint(1800, 2026)}", f" for {rng.randint(2, 900)} francs"))
    subject, verb, thing = rng.choice(NOUNS), rng.choice(VERBS), rng.choice(NOUNS)
    return f"In {rng.choice(NAMES)} the {subject} {verb} the {thing} of {rng.choice(NAMES)}{end}."


def made_up(characters: int, seed: int = 20261120) -> str:
    rng = random.Random(seed)
    parts: list[str] = []
    while sum(map(len, parts)) < characters:
        paragraph = " ".join(sentence(rng) for _ in range(rng.randint(3, LONGEST_PARAGRAPH)))
        title = f"# {rng.choice(NAMES)} and the {rng.choice(NOUNS)}\n\n" if rng.random() < 0.2 else ""
        parts.append(f"{title}{paragraph}\n\n")
    return "".join(parts)
