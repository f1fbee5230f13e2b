"""A thread that needs the interpreter often, and for a moment each time, gets it while another one computes."""

from __future__ import annotations

import subprocess
import sys

# Sleeping gives up the interpreter, as the ledger's writer does for each call of its database.
PROGRAM = """
import threading, time
from serve.processes.process_setup import prepare_interpreter

prepare_interpreter()
took = []

def write():
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(30):
            time.sleep(0.0005)
        took.append(time.perf_counter() - began)

threading.Thread(target=write).start()
while len(took) < 5:
    sum(range(100))
print(min(took))
"""


def test_a_thread_that_calls_its_database_gets_on_while_the_event_loop_is_busy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True
    )
    # With the interpreter's own interval each turn takes over 5 ms, whatever else the machine does.
    assert float(done.stdout) < 0.14
