"""The run without a server: the same pipeline, in processes, in the order of the tasks."""

from __future__ import annotations

import pytest

from benchmarks.evaluation.case import Task
from benchmarks.evaluation.datasets import Records
from benchmarks.evaluation.suites import plain
from benchmarks.quality import in_process, overview
from benchmarks.quality.scoring import summarise

ROWS = [
    Records(tuple((f"key{n}", f"value{n}") for n in range(40)), f"key{at}", f"value{at}") for at in (3, 30)
]


@pytest.mark.thorough
def test_tasks_run_in_processes_and_come_back_in_their_order() -> None:
    tasks = [Task(case, ratio) for case in plain.record_cases(ROWS, "kv_40") for ratio in (0.5, 0.2)]
    outcomes = list(in_process.outcomes(tasks, "lexical", processes=1))
    assert [(one.case, one.ratio) for one in outcomes] == [(task.case.name, task.ratio) for task in tasks]
    assert all(one.has_evidence and one.told and one.told.ratio <= (one.ratio or 0) for one in outcomes)
    head, _, *rows = overview.table_of(summarise(outcomes))
    assert "measure" in head
    assert rows[0].startswith(
        "| kv_40 | lexical | 2 | pair / parses | 0.5: 100.0 / 100.0, 0.2: 100.0 / 100.0 |"
    )


def test_a_model_of_another_kind_is_not_built() -> None:
    with pytest.raises(KeyError, match="sorcery"):
        in_process.spec_of("sorcery")
