"""No process outlives the server, and none that has ended stays in the process table."""

from __future__ import annotations

import subprocess
import sys
import textwrap

SCRIPT = textwrap.dedent(
    """
    import subprocess, sys, threading, time
    import psutil
    from serve.processes.process_setup import adopt_orphans, reap_orphans, children_of_this_process, stop_descendants

    def until(condition):
        deadline = time.monotonic() + 50
        while not condition():
            assert time.monotonic() < deadline
            threading.Event().wait(0.02)

    def children(status=None):
        return [c for c in psutil.Process().children() if status is None or c.status() == status]

    adopt_orphans()
    # A parent that leaves a child behind, as a crashed engine leaves its worker.
    sleeper = "import time; time.sleep(600)"
    parent = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[1]])"
    subprocess.run([sys.executable, "-c", parent, sleeper], check=True)
    until(lambda: len(children()) == 1)
    orphan = children()[0]
    orphan.kill()
    until(lambda: children(psutil.STATUS_ZOMBIE))
    reap_orphans(started=())
    assert not children(), "the orphan was adopted and not reaped"
    subprocess.run([sys.executable, "-c", parent, sleeper], check=True)
    until(lambda: len(children()) == 1)
    stop_descendants()
    assert not [c for c in children() if c.status() != psutil.STATUS_ZOMBIE], "the orphan outlived the stop"
    """
)


def test_orphans_are_adopted_reaped_and_stopped() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
