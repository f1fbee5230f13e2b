"""Pages hold their articles letter by letter, are the same every time, and are absent where no documentation is."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.evaluation.case import seeded
from benchmarks.evaluation.suites import page_shells, pages
from benchmarks.evaluation.suites.families import page
from benchmarks.quality.baselines import long_paragraphs

WORDS = [
    f"{first}{second}"
    for first in "bdfgk"
    for second in ("alto", "ento", "irmo", "oska", "unde", "yrle", "assa", "elli")
]
BODY = "".join(
    f'<div class="para">The {word}rim of the harbour has a {word}mast and no {word}bell for its boats.</div>'
    for word in WORDS
)
SOURCE = (
    f'<html><div class="section"><h2>The harbour</h2>{BODY}</div><ul class="docnav"><li>Next</li></ul></html>'
)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "debian-handbook" / "html" / "en-US"
    folder.mkdir(parents=True)
    for number in range(7):
        (folder / f"sect.{number}.html").write_text(SOURCE.replace("The harbour", f"Harbour {number}"))
    monkeypatch.setattr(pages, "_DOCS", tmp_path)
    monkeypatch.setattr(pages, "_NPM", tmp_path / "none")


@pytest.mark.parametrize("make", [*page_shells.TUNED, *page_shells.HELD_OUT])
def test_every_shell_has_the_article_and_its_facts_in_a_page_that_is_mostly_no_text(
    make: page_shells.Make,
) -> None:
    shell = make("The harbour", BODY, seeded("shell"))
    assert shell.html == make("The harbour", BODY, seeded("shell")).html
    assert BODY in shell.html
    said = pages.text_of(shell.html)
    assert all(fact.sentence in said for fact in shell.facts)
    assert len(said) * 4 < len(shell.html)


@pytest.mark.usefixtures("installed")
def test_the_whole_page_has_all_of_its_article_and_half_of_the_shells_are_held_out() -> None:
    cases = list(pages.page_cases())
    assert [case.is_held_out for case in cases[:6]] == [False] * 3 + [True] * 3
    for case in cases:
        assert page(case, case.context) == {"evidence": 1.0, "all evidence": 1.0}
        assert len(case.needs) == 40
        assert page(case, "")["evidence"] == 0.0


@pytest.mark.usefixtures("installed")
def test_a_fact_is_one_sentence_of_the_page_or_beside_its_article() -> None:
    cases = list(pages.fact_cases())
    assert len(cases) == 7
    assert all(page(case, case.context)["all evidence"] for case in cases)
    assert "harbour" not in cases[1].needs[0].text


@pytest.mark.usefixtures("installed")
def test_long_paragraphs_are_a_good_trick_within_the_budget() -> None:
    case = next(pages.page_cases())
    assert page(case, long_paragraphs(case, 0.5))["evidence"] > 0.9
    assert long_paragraphs(case, 0.01) != long_paragraphs(case, 0.5)


def test_without_documentation_there_are_no_pages_and_what_to_install_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pages, "_DOCS", tmp_path)
    monkeypatch.setattr(pages, "_NPM", tmp_path)
    assert list(pages.page_cases()) == list(pages.fact_cases()) == []
    assert "install Debian's python3-doc" in capsys.readouterr().err
