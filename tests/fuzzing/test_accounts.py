"""A few courses of the accounts' machine; `python -m tests.fuzzing accounts` makes more."""

from __future__ import annotations

from pathlib import Path

from tests.fuzzing.accounts import both_apis, run_machine


def test_accounts_stand_whatever_is_done_with_them_in_whatever_order(tmp_path: Path) -> None:
    with both_apis(tmp_path) as apis:
        assert run_machine(apis, courses=4, steps=30) > 60
