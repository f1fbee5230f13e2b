"""Results of made-up tools: records of many shapes, of which a later call repeats some values."""

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.evaluation.case import seeded

Maker = Callable[[random.Random], str]
WORDS = (
    "pending", "active", "closed", "north", "blue", "express", "monthly", "manual", "primary", "gold", "draft",
    "wholesale", "sea_freight", "night_shift", "in_review", "paid", "refunded", "two_way", "cotton", "matte",
)  # fmt: skip
NAMES = (
    "Amina",
    "Jonas",
    "Wei",
    "Okafor",
    "Larsen",
    "Petrova",
    "Silva",
    "Tanaka",
    "Meyer",
    "Rossi",
    "Haddad",
    "Novak",
)
PLACES = ("Porto", "Leeds", "Osaka", "Lagos", "Quito", "Gdansk", "Perth", "Turin")
REMARKS = (
    "Left with the neighbour after two attempts.", "Customer asked for a call back in the morning.",
    "Replaced under warranty.",
    "Waiting for the supplier to confirm the new date.", "No fault was found in the second test.",
)  # fmt: skip
IDENTIFIERS: tuple[Maker, ...] = (
    lambda rng: f"{rng.choice(('ord', 'inv', 'tkt', 'usr', 'doc'))}_{rng.randrange(10**5, 10**8)}",
    lambda rng: str(rng.randrange(10**8, 10**10)),
    lambda rng: "".join(rng.choices("ABCDEFGHJKLMNPQRSTUVWXYZ23456789", k=rng.randint(5, 8))),
    lambda rng: f"{rng.choice('ABCDEFGH')}{rng.randrange(100, 9999)}",
    lambda rng: f"{rng.getrandbits(32):08x}-{rng.getrandbits(16):04x}",
    lambda rng: f"/srv/{rng.choice(WORDS)}/{rng.choice(WORDS)}{rng.randrange(99)}.csv",
)
OTHERS: dict[str, Maker] = {
    "date": lambda rng: f"20{rng.randrange(19, 27)}-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}",
    "time": lambda rng: f"2024-{rng.randrange(1, 13):02}-11T{rng.randrange(24):02}:{rng.randrange(60):02}:07",
    "name": lambda rng: f"{rng.choice(NAMES)} {rng.choice(NAMES)}",
    "place": lambda rng: rng.choice(PLACES),
    "word": lambda rng: rng.choice(WORDS),
    "number": lambda rng: str(rng.randrange(0, 3000)),
    "remark": lambda rng: rng.choice(REMARKS),
}  # fmt: skip
# What a call repeats, as often as agents do: mostly what names a thing, then when, then the rest.
WANTED = {"identifier": 86, "date": 11, "word": 2, "name": 1}
MEMBERS = {
    "identifier": ("id", "ref", "order", "account", "parcel", "invoice", "device", "ticket", "file", "batch"),
    "date": ("due", "day", "born", "valid_until", "ships"), "time": ("created", "updated", "seen"),
    "name": ("owner", "contact", "author", "approved_by"), "place": ("city", "site", "port"),
    "word": ("state", "kind", "tier", "colour", "channel", "mode"),
    "number": ("price", "count", "weight", "left", "days"), "remark": ("note", "comment"),
}  # fmt: skip
DOMAINS = ("lists", "nested", "keyed", "single")
ASKED = (
    "Can you look that up for me?",
    "Please go on with it.",
    "What are my options?",
    "I want to change the second one.",
)


def made_results(count: int) -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    """Kind of shape, query, JSON, and the values that a later call repeats."""
    for number in range(count):
        rng = seeded(f"made result {number}")
        domain = DOMAINS[number % len(DOMAINS)]
        values: dict[str, list[str]] = {}
        body = _body(domain, rng, values)
        query = f"{rng.choice(ASKED)}\n{rng.choice(('get', 'list', 'find'))}_{rng.choice(WORDS)} {{}}"
        kinds = [kind for kind in WANTED if values.get(kind)]
        chosen = rng.choices(kinds, [WANTED[kind] for kind in kinds], k=rng.choice((1, 1, 2)))
        needed = tuple(dict.fromkeys(rng.choice(values[kind]) for kind in chosen))
        yield domain, query, json.dumps(body), needed


def _body(domain: str, rng: random.Random, values: dict[str, list[str]]) -> Any:
    shape, inner = _shape(rng, rng.randint(5, 11)), _shape(rng, rng.randint(2, 5))
    if domain == "lists":
        return [_record(shape, rng, values) for _ in range(rng.randint(4, 16))]
    if domain == "keyed":
        return {rng.choice(IDENTIFIERS)(rng): _record(shape, rng, values) for _ in range(rng.randint(3, 9))}
    if domain == "single":
        return _record(_shape(rng, 16), rng, values) | {
            "items": [_record(inner, rng, values) for _ in range(rng.randint(1, 4))]
        }
    return {
        "found": [
            _record(shape, rng, values)
            | {"parts": [_record(inner, rng, values) for _ in range(rng.randint(1, 4))]}
            for _ in range(rng.randint(2, 6))
        ]
    }


def _shape(rng: random.Random, members: int) -> list[tuple[str, str, Maker]]:
    """Names, kinds and makers of a record's members; the first names it."""
    kinds = ["identifier", *rng.choices([*MEMBERS], [3, 2, 1, 2, 1, 4, 4, 0.5], k=members - 1)]
    shape: dict[str, tuple[str, str, Maker]] = {}
    for kind in kinds:
        name = rng.choice(MEMBERS[kind])
        shape[name] = (name, kind, rng.choice(IDENTIFIERS) if kind == "identifier" else OTHERS[kind])
    return list(shape.values())


def _record(
    shape: list[tuple[str, str, Maker]], rng: random.Random, values: dict[str, list[str]]
) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for name, kind, make in shape:
        value = make(rng)
        values.setdefault(kind, []).append(value)
        record[name] = int(value) if kind == "number" else value
    return record
