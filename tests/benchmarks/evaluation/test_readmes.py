"""READMEs: each question has one line for its evidence, which the whole text keeps and nothing does not."""

from __future__ import annotations

import pytest

from benchmarks.evaluation.case import Task
from benchmarks.evaluation.suites import readmes
from benchmarks.quality.scoring import judge

TEXT = """# Tides

A package for tables of tides in harbours.

## Install

Everything that is needed comes along with the archive of binaries.

```bash
python -m pip install tides --no-isolation
```

## Options

| Name | Default | Meaning |
|---|---|---|
| depth | 4 | metres below the chart |
| zone | UTC | of the hours that are printed |
| wide | no | columns for every harbour |
"""


def test_a_question_has_its_line_of_each_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readmes, "readmes", lambda: [("tides", TEXT), ("other", TEXT)])
    cases = list(readmes.cases())
    assert [case.is_held_out for case in cases] == [False, False, False, True, True, True]
    sentence, row, line = (case.needs[0].text for case in cases[:3])
    assert sentence == "Everything that is needed comes along with the archive of binaries."
    assert row.startswith("| ") and row.count("|") == 4
    assert line == "python -m pip install tides --no-isolation"
    assert cases[2].query.startswith("Which line of the example under Install has ")
    for case in cases:
        assert set(judge(Task(case, 0.25), "whole", case.context).measures.values()) == {1.0}
        assert set(judge(Task(case, 0.25), "none", "").measures.values()) == {0.0}
