"""A thread that needs the interpreter often, and for a moment each time, gets it while another one computes."""

from __future__ import annotations

import gc
import sys

from serve.processes.process_setup import prepare_interpreter


def test_a_thread_that_computes_lets_others_go_on_ten_times_as_often_as_usual() -> None:
    usual = sys.getswitchinterval()
    try:
        prepare_interpreter()
        assert sys.getswitchinterval() <= usual / 10
        assert gc.get_freeze_count() > 0
    finally:
        sys.setswitchinterval(usual)
        gc.unfreeze()
