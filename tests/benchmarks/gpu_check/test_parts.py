"""The parts of the check: together within their time, each on the page, and left out where something is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.gpu_check.__main__ import check
from benchmarks.gpu_check.device import Device
from benchmarks.gpu_check.parts import PARTS, Part
from benchmarks.gpu_check.record import Record

ROOT = Path(__file__).resolve().parents[3]


def test_the_check_itself_needs_no_package_at_all() -> None:
    command = [sys.executable, "-S", "-c", "import benchmarks.gpu_check.__main__"]
    subprocess.run(command, cwd=ROOT, check=True, timeout=300)


def test_all_parts_together_take_less_than_25_minutes() -> None:
    assert sum(part.limit_s for part in PARTS) <= 25 * 60 - 30


def test_the_page_has_each_part_with_its_limit() -> None:
    page = (ROOT / "docs/gpu.md").read_text(encoding="utf-8")
    for part in PARTS:
        (row,) = (line for line in page.splitlines() if line.startswith(f"| `{part.name}` |"))
        assert row.endswith(f"| {part.limit_s:.0f} s |")
    assert f"{sum(part.limit_s for part in PARTS):,.0f}\nseconds in all" in page


def test_what_is_missing_is_a_reason_and_no_failure(tmp_path: Path) -> None:
    found, record = Device("none", "no GPU"), Record(tmp_path / "found", {})
    for packages in (("json",), ("json", "no_such_package")):
        check(Part("p", "", "m", (), 1, packages), "cuda", found, record)
    assert [(one.state, one.reason, one.rows) for one in record.outcomes] == [
        ("skipped", "no GPU", []),
        ("skipped", "not installed: no_such_package", []),
    ]
    assert "skipped: no GPU" in record.out.with_suffix(".md").read_text()
