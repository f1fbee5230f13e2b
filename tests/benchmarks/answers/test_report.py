"""Tables and the picture of answers."""

from pathlib import Path

import pytest

from benchmarks.answers.arms import ARMS, WHOLE
from benchmarks.answers.asking import Answer
from benchmarks.answers.report import HEAD, cells, complete, from_page, picture, report_of

NAMES = [arm.name for arm in ARMS]


def answer(case: str, arm: str, *, is_right: bool, tokens: int = 100, is_alone: bool = True) -> Answer:
    return Answer("s", case, arm, "", is_right, fits=True, is_alone=is_alone, prompt_tokens=tokens,
                  usd=0.001, ttft_s=1.0 if is_alone else 9.0, total_s=2.0)  # fmt: skip


def test_a_row_compares_an_arm_with_the_whole_on_the_same_cases() -> None:
    found = [answer(f"s/{at}", "whole", is_right=at < 2) for at in range(4)]
    found += [answer(f"s/{at}", "0.1", is_right=at < 3, tokens=10) for at in range(4)]
    assert cells(found, "whole")[:5] == ["whole", "50.0%", "15.0 to 85.0", "", ""]
    row = dict(zip(HEAD, cells(found, "0.1"), strict=True))
    assert (row["right"], row["p (McNemar)"], row["prompt tokens"]) == ("75.0%", "1", "10")
    assert row["less whole, 95%"].startswith("-") and row["$ per 1,000"] == "1.0000"


def test_only_requests_that_were_alone_have_times() -> None:
    found = [answer("s/1", "whole", is_right=True), answer("s/2", "whole", is_right=True, is_alone=False)]
    assert cells(found, "whole")[-2:] == ["1.00", "2.00"]
    assert cells(found[1:], "whole")[-2:] == ["", ""]


def test_a_case_that_lacks_an_arm_counts_in_none() -> None:
    found = [answer("s/1", arm, is_right=True) for arm in ("whole", "gold", "tail 0.1")]
    found.append(answer("s/2", "whole", is_right=False))
    assert {each.case for each in complete(found, ["whole", "gold"])} == {"s/1"}
    with pytest.raises(ValueError, match="in every arm"):
        report_of(found[-1:], ["whole", "gold"], {})


def test_an_arm_in_which_nothing_fits_has_no_times() -> None:
    absent = [Answer("s", "s/1", arm, "", is_right=False, fits=arm != WHOLE.name) for arm in NAMES]
    assert cells(absent, WHOLE.name)[5:] == ["1", "0", "0", "0.0000", "", ""]


def report_text(folder: Path) -> Path:
    found = [answer(f"s/{at}", arm, is_right=at == 1 and arm == "0.1", tokens=9 + place)
             for at in range(3) for place, arm in enumerate(NAMES)]  # fmt: skip
    page = folder / "page.md"
    made = report_of(found, NAMES, {"command": "test"})
    page.write_text(made.markdown().split("## s: ")[0], encoding="utf-8")
    assert "## all: 3 cases, times of 3" in page.read_text(encoding="utf-8")
    assert "| all | 3 | 0.0 |" in page.read_text(encoding="utf-8")
    return page


def test_the_picture_is_that_of_the_pages_table(tmp_path: Path) -> None:
    drawn = from_page(report_text(tmp_path))
    [panel] = drawn.panels
    assert list(panel.lines) == ["whole", "pith", "keep 0.95", "BM25", "tail", "gold", "nothing"]
    assert panel.lines["pith"] == [(10.0, 0.0), (11.0, 0.0), (12.0, 33.3)]
    assert panel.upright["pith"][2] == (12.0, 6.1, 79.2)
    assert drawn.title == (
        "Right with the whole context of 9 tokens: 0.0%; with pith at 0.1, 12 tokens: 33.3%"
    )


def test_a_run_of_few_arms_has_a_picture_too() -> None:
    found = [answer("s/1", arm, is_right=True) for arm in ("whole", "gold")]
    assert "with gold" in picture([cells(found, arm) for arm in ("whole", "gold")]).title
