"""Every block of the pages that `integration/test_readme.py` runs is a command, or the output of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command_blocks import CannotRunError, blocks_of, differences, missing_lines

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("page", "at_least"), [("README.md", 6), ("docs/operating.md", 1), ("docs/operations/first-day.md", 9)]
)
def test_every_block_of_a_page_is_a_command_or_what_one_prints(page: str, at_least: int) -> None:
    assert len(blocks_of((ROOT / page).read_text())) >= at_least


@pytest.mark.parametrize(
    "page",
    [
        "```yaml\na: 1\n```",
        "```\nmake serve\n```",
        "~~~ruby\nputs 1\n~~~",
        "- item\n\n  ```yaml\n  a: 1\n  ```",
        "Run this:\n\n    make serve\n",
        "```json\n{}\n```",
        "```console\nmake serve\n```",
        "```bash\nmake serve",
    ],
    ids=[
        "a language that nothing runs",
        "no language",
        "tildes",
        "in a list",
        "indented",
        "output of no command",
        "console without a prompt",
        "never closed",
    ],
)
def test_a_block_that_nothing_would_run_is_refused(page: str) -> None:
    with pytest.raises(CannotRunError):
        blocks_of(page)


def test_a_command_goes_on_to_the_end_of_its_quotes_and_what_follows_is_its_output() -> None:
    page = "```console\n$ curl -d '{\n  1}' \\\n  there  # it's here\nyes\n$ next\n```\n```text\nno\n```"
    (block,) = blocks_of(page)
    assert [step.code for step in block.steps] == ["curl -d '{\n  1}' \\\n  there  # it's here", "next"]
    assert [step.output for step in block.steps] == [["yes"], ["no"]]


def test_lines_are_missing_where_their_words_or_their_order_differ_and_not_their_figures() -> None:
    printed = ["model  requests", "pith-mini     12   0.5", "total  99"]
    assert missing_lines(["model requests", "…", "pith-mini 1  0.0000235"], printed) == []
    assert missing_lines(["model … requests …", "pith-mini … 0.5"], printed) == []
    assert missing_lines(["[ 34.4 s] ready"], ["[115.8 s] ready"]) == []
    assert missing_lines(["pith-base 1 1"], printed) == ["pith-base 1 1"]
    assert missing_lines(["total 1", "model requests"], printed) == ["model requests"]


def test_json_differs_where_a_shown_member_is_missing_or_has_another_value() -> None:
    got = {"id": "cmp_12", "took": 3.5, "price": 0.1, "more": None, "list": [{"a": True}]}
    varying = frozenset({"took"})
    assert differences({"id": "cmp_…", "took": 9.9, "price": 0.1, "list": [{"a": True}]}, got, varying) == []
    for wrong in ({"id": "chat_…"}, {"took": "9"}, {"price": 0.2}, {"none": 1}, {"list": [{"a": False}]}):
        assert len(differences(wrong, got, varying)) == 1, wrong
