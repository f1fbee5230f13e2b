"""Counts the steps that Python takes: growth that is held by a test without a clock."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def steps(work: Callable[[], Any]) -> int:
    """Bytecodes that the work takes in Python, with all that it calls. What built-in functions do counts as one."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    # Python 3.12 gives opcodes to a trace function only if some frame has asked for them before it is set.
    sys._getframe().f_trace_opcodes = True
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def growth(work: Callable[[int], Callable[[], Any]], size: int) -> float:
    """The exponent p of cost ~ size^p between a size and its fourfold. `work(size)` prepares what is then counted."""
    small, large = steps(work(size)), steps(work(4 * size))
    return math.log(large / small, 4)
