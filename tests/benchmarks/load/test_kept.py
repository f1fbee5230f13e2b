"""What a server keeps, read from its metrics and its folder."""

from __future__ import annotations

from pathlib import Path

from benchmarks.load.kept import FILES, LEDGER, OTHERS, SPOOL, disk_mib, total

METRICS = """# HELP pith_log_pending Events and adjustments.
# TYPE pith_log_pending gauge
pith_log_pending 3.0
pith_log_pending_other 100.0
pith_event_loop_tasks{process="1"} 12.0
pith_event_loop_tasks{process="2"} 30.0
"""


def test_all_series_of_a_family_are_added_up() -> None:
    assert total(METRICS, "pith_log_pending") == 3
    assert total(METRICS, "pith_event_loop_tasks") == 42
    assert total(METRICS, "pith_nothing") == 0


def test_disk_is_counted_by_place(tmp_path: Path) -> None:
    for name, size in (("pith.db", 3), ("pith.db-wal", 1), ("spool.db", 2), ("files/a", 5), ("logs/x", 1)):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"a" * size * 2**20)
    found = {name: round(mib) for name, mib in disk_mib(tmp_path).items()}
    assert found == {LEDGER: 4, SPOOL: 2, FILES: 5, OTHERS: 1}
