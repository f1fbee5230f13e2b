"""Memory that one call needs beyond what its process has: the peak of its resident set, from Linux."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR_PEAK = "5"


def peak_growth_bytes(call: Callable[[], object]) -> int:
    """Bytes by which the process was larger at its largest during `call` than before it."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text(_CLEAR_PEAK)
    before = _status("VmRSS")
    call()
    return max(0, _status("VmHWM") - before)


def _status(name: str) -> int:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return 1024 * int(line.split()[1])
