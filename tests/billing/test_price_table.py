"""A thousand costs that a reader can check by hand, in `price_table.csv`, against `billing.price`."""

from __future__ import annotations

import csv
from decimal import Decimal
from fractions import Fraction

import pytest

from billing.price import ModelPrice, cost, usd
from tests.billing.make_price_table import ROWS, TABLE, rows


def table() -> list[dict[str, str]]:
    with TABLE.open(newline="", encoding="ascii") as file:
        return list(csv.DictReader(file))


def whole(amount: str, unit: int) -> int:
    """`amount` dollars in units of one `unit`th of a dollar, which must be a whole number of them."""
    exact = Fraction(amount) * unit
    assert exact.denominator == 1, f"{amount} is no whole number of 1/{unit} dollars"
    return int(exact)


def test_every_row_of_the_table_is_what_is_charged() -> None:
    wrong = []
    for number, row in enumerate(table(), 2):
        price = ModelPrice(
            "m",
            whole(row["input_usd_per_mtok"], 10**6),
            whole(row["output_usd_per_mtok"], 10**6),
            whole(row["minimum_request_usd"], 10**9),
        )
        found = cost(
            price,
            prompt_tokens=int(row["prompt_tokens"]),
            completion_tokens=int(row["completion_tokens"]),
            minimum=True,
        )
        expected = (
            whole(row["subtotal_usd"], 10**9),
            whole(row["request_cost_usd"], 10**9),
            row["minimum_applied"] == "yes",
        )
        if (found.subtotal_nano_usd, found.nano_usd, found.minimum_applied) != expected:
            wrong.append(f"line {number}: {row}: {found}")
        assert usd(found.nano_usd) == float(Decimal(row["request_cost_usd"]))
    assert wrong == []


def test_the_table_is_what_its_script_writes() -> None:
    assert table() == rows()


@pytest.mark.parametrize("step", ["under", "at", "over"])
def test_the_table_has_rows_on_every_side_of_the_minimum(step: str) -> None:
    nearest = {"under": -1, "at": 0, "over": 1}[step]
    gaps = [whole(row["subtotal_usd"], 10**9) - whole(row["minimum_request_usd"], 10**9) for row in table()]
    assert gaps.count(nearest) >= ROWS // 20


def test_the_table_has_ties_of_half_a_nano_dollar_rounded_to_even_both_ways() -> None:
    directions = set()
    for row in table():
        exact, subtotal = Fraction(row["exact_usd"]) * 10**9, whole(row["subtotal_usd"], 10**9)
        if exact.denominator == 2:
            assert subtotal % 2 == 0
            directions.add(subtotal > exact)
    assert directions == {True, False}
