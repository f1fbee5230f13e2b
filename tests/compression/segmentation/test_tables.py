"""A table's frame: every row that names its columns, and the row that names those under it."""

from __future__ import annotations

import pytest

from compression.pipeline.compression_model import CompressionRequest
from compression.pipeline.pipeline import Compressor
from compression.segmentation import segment
from compression.segmentation.tables import cells, mark_of
from compression.source.units import Segmentation

FILING = """\
|  | Year ended June 30, |  |
|---|---|---|
|  | 2019 | 2018 |
|  | (in thousands) |  |
| Current: |  |  |
| Federal | 12 | (4) |
| State | 2,204 | 1,118 |
| Deferred: |  |  |
| Federal | 7 | 3 |
| Total | 2,223 | 1,117 |
"""


def header(text: Segmentation) -> str:
    return text.text(next(frame.open for frame in text.frames if frame.kind == "table"))


def sections(text: Segmentation) -> dict[str, str]:
    """By row, what its innermost frame opens with."""
    return {
        text.text(at): text.text(text.frames[unit.frame].open).split("\n")[0]
        for at, unit in enumerate(text.units)
        if unit.kind == "table_row" and unit.frame is not None
    }


def test_years_and_units_under_a_header_are_part_of_it() -> None:
    assert header(segment(FILING)).endswith("|  | (in thousands) |  |")


def test_a_row_stands_under_its_section() -> None:
    found = sections(segment(FILING))
    assert found["| Federal | 12 | (4) |"] == "| Current: |  |  |"
    assert found["| Federal | 7 | 3 |"] == "| Deferred: |  |  |"


@pytest.mark.parametrize("mark", [",", "\t", ";"])
def test_so_it_does_where_columns_are_separated(mark: str) -> None:
    rows = [
        ["", "2019", "2018"],
        ["Current", "", ""],
        ["Federal", "12", "4"],
        ["State", "22", "18"],
        ["Sum", "34", "22"],
    ]
    found = sections(segment("\n".join(mark.join(row) for row in rows)))
    assert found[mark.join(rows[2])] == mark.join(rows[1]).strip()


def test_a_table_of_words_has_one_header_and_no_sections() -> None:
    rows = "| Ann | 1999 | Rome |\n| Bob | 2001 | Oslo |\n| Cid | 1987 | Bonn |\n"
    source = f"| Name | Founded | Place |\n|---|---|---|\n{rows}"
    text = segment(source)
    assert header(text) == "| Name | Founded | Place |\n|---|---|---|"
    assert sum(frame.kind == "table" for frame in text.frames) == 1


def test_the_head_of_a_csv_file_above_longer_rows_is_no_title() -> None:
    row = ",1922,Otto Meyer,for his discovery of the fixed relation between the use of oxygen and of lactic acid"
    source = "Rank,Year,Laureate,Rationale\n" + "\n".join(f"{number}{row}" for number in range(8))
    text = segment(source)
    assert header(text) == "Rank,Year,Laureate,Rationale"
    assert text.documents[0].title is None


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ('a,"b, c",,d', ["a", "b, c", "", "d"]),
        ('a,"b ""x"" c",d', ["a", 'b ""x"" c', "d"]),
        ("| a |  | b |", ["a", "", "b"]),
        ("a\t\tb", ["a", "", "b"]),
        ("a   b c    d", ["a", "b c", "d"]),
    ],
)
def test_cells_are_told_by_the_mark_of_their_table(row: str, expected: list[str]) -> None:
    assert cells(row, mark_of(row)) == expected


def test_the_section_of_a_kept_row_is_kept_with_its_years_and_units(lexical: Compressor) -> None:
    request = CompressionRequest("What was the deferred federal tax?", FILING * 4, 0.4)
    result = lexical.compress(request)
    assert "| Deferred: |  |  |" in result.output and "(in thousands)" in result.output
    assert "table_damaged" not in {flag.code for flag in result.receipt.risk_flags}
