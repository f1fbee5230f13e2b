"""The benchmark of originals measures a ledger that reconciles, beside writers that keep texts."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.ledger.originals import ALONE, BESIDE, CHUNK_BYTES, CHUNKS, STEP_CHUNKS, measure
from serve.originals.originals import CHUNK_CHARACTERS, LONGEST_PAUSE_S, STEP_BYTES


async def test_a_short_run_has_a_line_for_each_side(tmp_path: Path) -> None:
    options = argparse.Namespace(rounds=1, clients=4, seconds=0.8)
    alone, beside = await measure("SQLite", f"sqlite:///{tmp_path / 'ledger.db'}", tmp_path, options)
    assert alone.startswith(f"| SQLite, {ALONE} |") and beside.startswith(f"| SQLite, {BESIDE} |")
    assert alone.count("|") == beside.count("|") == 10
    assert "texts of 8 MiB" in beside


def test_it_writes_as_a_server_does() -> None:
    from benchmarks.ledger import originals

    assert CHUNKS * CHUNK_CHARACTERS == 2**23
    assert STEP_CHUNKS * CHUNK_BYTES == STEP_BYTES
    assert originals.LONGEST_PAUSE_S == LONGEST_PAUSE_S
