"""The benchmarks of the transparency log report only where each settlement became a leaf, and each leaf was proven."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from benchmarks.ledger import leaves, proof
from benchmarks.ledger.load import BadRun
from benchmarks.ledger.log import WITH, WITHOUT, measure, run, without_log
from billing.store.migration import upgrade


async def test_a_short_run_compares_the_two(tmp_path: Path) -> None:
    options = argparse.Namespace(rounds=1, clients=4, seconds=0.8)
    urls = {kind: f"sqlite:///{tmp_path / kind}.db" for kind in (WITHOUT, WITH)}
    pairs, settlements = await measure("SQLite", urls, tmp_path, options)
    assert pairs.startswith("| SQLite | pairs/s | ") and settlements.startswith("| SQLite | settlements/s | ")


async def test_a_proof_is_checked_as_its_reader_does_and_one_that_is_wrong_is_not_reported(
    tmp_path: Path,
) -> None:
    await upgrade(f"sqlite:///{tmp_path / 'ledger.db'}")
    path, made_s = await proof.write_proof(tmp_path, 300)
    assert proof.check(path)[0] > 0 < made_s
    path.write_text(path.read_text().replace('\\"prompt_tokens\\":200', '\\"prompt_tokens\\":201', 1))
    with pytest.raises(BadRun, match="the check found"):
        proof.check(path)


async def test_settlements_that_become_no_leaves_are_not_reported(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    await upgrade(url)
    await without_log(url)
    with pytest.raises(BadRun, match="became 0 leaves"):
        await run(url, tmp_path / "spool.db", 2, 0.2, is_logged=True)


async def test_a_small_log_is_filled_and_proven(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = argparse.Namespace(leaves=70_000, per_minute=1000)
    await leaves.measure(f"sqlite:///{tmp_path / 'ledger.db'}", tmp_path, options)
    told = capsys.readouterr().out
    assert "bytes a leaf" in told and told.count("proof of one") == 2
    assert "checkpoint after 500 new leaves" in told
