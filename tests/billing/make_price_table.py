"""Writes `price_table.csv`: a thousand costs, computed in fractions and decimals and without `billing.price`.

`python tests/billing/make_price_table.py` writes it again, the same every time. Prices are in US dollars per million
tokens and minimums in US dollars, as a configuration has them; `exact_usd` is what the tokens cost before rounding.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Iterator
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from fractions import Fraction
from pathlib import Path

TABLE = Path(__file__).with_name("price_table.csv")
ROWS = 1000
SEED = 20261120
COLUMNS = (
    "input_usd_per_mtok",
    "output_usd_per_mtok",
    "minimum_request_usd",
    "prompt_tokens",
    "completion_tokens",
    "exact_usd",
    "subtotal_usd",
    "minimum_applied",
    "request_cost_usd",
)
NANO = Decimal("0.000000001")
Question = tuple[str, str, str, int, int]

# Prices of real price lists, and a request that a reader can multiply in the head.
PLAIN = ("0.05", "0.10", "0.15", "0.25", "0.50", "0.60", "1", "1.25", "2", "3", "4.50", "10", "15", "75")


def questions() -> Iterator[Question]:
    """Plain ones, ones at the minimum's edge, ties that must be rounded, and wild ones."""
    rng = random.Random(SEED)
    for _ in range(ROWS // 4):
        yield rng.choice(PLAIN), rng.choice(PLAIN), "0", rng.randrange(1, 100) * 10, rng.randrange(1, 50) * 10
    for index in range(ROWS // 4):
        yield _at_the_minimum(rng, index % 3 - 1)
    for _ in range(ROWS // 4):
        # An odd number of half nano-dollars: 0.0005 dollars a million tokens is half a nano-dollar a token.
        price = Decimal(5 * (2 * rng.randrange(500) + 1)) / 10_000
        yield format(price, "f"), "0", "0", 2 * rng.randrange(5_000) + 1, rng.randrange(100)
    for _ in range(ROWS // 4):
        prices = (f"{rng.randrange(10**9)}e-6", f"{rng.randrange(10**9)}e-6", f"{rng.randrange(10**7)}e-9")
        plain = [format(Decimal(price), "f") for price in prices]
        yield plain[0], plain[1], plain[2], rng.randrange(200_000), rng.randrange(17_000)


def _at_the_minimum(rng: random.Random, step: int) -> Question:
    """`step` is -1, 0 or 1: a nano-dollar under the minimum, at it, or over it."""
    per_token = rng.randrange(1, 100)
    tokens = rng.randrange(2, 1000)
    minimum = Decimal(per_token * tokens - step) * NANO
    price = Decimal(per_token) / 1000
    return format(price, "f"), "0", format(minimum, "f"), tokens, rng.randrange(100)


def answer(question: Question) -> dict[str, str]:
    """The row of a question, by fractions; `subtotal` once more by decimals, and the two must agree."""
    input_price, output_price, minimum, prompt_tokens, completion_tokens = question
    exact = Fraction(input_price) * prompt_tokens + Fraction(output_price) * completion_tokens
    exact /= 10**6
    with localcontext(prec=60):
        decimal = Decimal(input_price) * prompt_tokens + Decimal(output_price) * completion_tokens
        decimal /= 10**6
        subtotal = decimal.quantize(NANO, ROUND_HALF_EVEN)
    assert Fraction(decimal) == exact and Fraction(subtotal) == Fraction(round(exact * 10**9), 10**9)
    is_under = exact < Fraction(minimum)
    values = (*question, decimal.normalize(), subtotal, is_under, Decimal(minimum) if is_under else subtotal)
    return {name: _plain(value) for name, value in zip(COLUMNS, values, strict=True)}


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def rows() -> list[dict[str, str]]:
    return [answer(question) for question in questions()]


if __name__ == "__main__":
    with TABLE.open("w", newline="", encoding="ascii") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows())
