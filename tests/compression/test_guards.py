"""What prose must not be cut inside of."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from compression.neural.words import find_guards


def locked(text: str) -> list[str]:
    return [text[start:end] for start, end in find_guards(text).locked]


def bound(text: str) -> list[str]:
    return [text[start:end] for start, end in find_guards(text).bound]


@pytest.mark.parametrize(
    "part",
    [
        "12 March 2024",
        "March 12, 2024",
        "March 2024",
        "$3.5 million",
        "94.25%",
        "-5 °C",
        "1,952",
        "330 metres",
        "https://example.org/a?b=1",
        "bob@example.org",
        "/usr/lib/python3",
        "`rm -rf x`",
        "compute_total(a, b)",
        "snake_case",
        "--dry-run",
        '{"a": 1}',
        '"we need it"',
        "“we need it”",
        "«nous»",
        "3 Uhr",
    ],
)
def test_it_is_locked_whole(part: str) -> None:
    text = f"They said that {part} was what they meant"
    assert any(part in found for found in locked(text)), locked(text)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("He did not sign the contract today", "did not sign the"),
        ("They came without any money", "without any money"),
        ("It wasn't her fault at all", "wasn't her fault"),
        ("Das ist nicht wahr und war es nie", "nicht wahr"),
        ("他们没有同意这个计划", "没有同意"),
        ("Then Jean-Paul Sartre left", "Jean-Paul Sartre"),
    ],
)
def test_it_is_bound_whole(text: str, part: str) -> None:
    assert any(part in found for found in bound(text)), bound(text)


def test_plain_prose_is_free() -> None:
    guards = find_guards("the committee met for hours and spoke of many things while everyone waited")
    assert guards.locked == guards.bound == ()


def test_spans_are_sorted_and_disjoint() -> None:
    guards = find_guards(
        'Not "3 May 2024" but `x(1)` at https://e.org/1, not never 5 km {"a": [1]} said Al Gore.' * 5
    )
    for spans in (guards.locked, guards.bound):
        assert all(left[1] <= right[0] for left, right in pairwise(spans))


@pytest.mark.parametrize(
    "text",
    [
        "a" * 100_000,
        "1" * 100_000,
        "not " * 25_000,
        "A " * 50_000,
        "a.b" * 30_000,
        "(" * 50_000,
        '"' * 50_000,
        "{[<" * 30_000,
        "a_" * 50_000,
        "x(" * 50_000,
        "/a" * 50_000,
        "a.b" * 30_000 + " (@:/[=->|",
    ],
)
def test_odd_text_takes_no_odd_time(text: str) -> None:
    start = time.process_time()
    find_guards(text)
    assert time.process_time() - start < 5
