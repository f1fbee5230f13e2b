"""`pith archive` in a process that is killed: after so many of its steps, or wherever it is by then."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

# After how many steps, 0 for all of them; and after how many seconds, 0 for none. Returns how it ended.
Run = Callable[[int, float], int]
# Loads everything once, and forks a process for each line that it is given.
SCRIPT = """
import asyncio, os, signal, sys, threading, time
from pathlib import Path
from billing.archive import archiver
from billing.ledger.spool import Spool
from billing.store.database import open_database

url, folder, spool, now = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4])
archiver.ROWS_AT_ONCE, archiver.PAGE_ROWS, archiver.EVENTS_IN_FILE = 4, 3, 5

def kill():
    os.kill(os.getpid(), signal.SIGKILL)

async def main(stop):
    told = []
    def tell(step):
        told.append(step)
        if len(told) == stop:
            kill()
    database = open_database(url, clock=(lambda: now) if now else time.time)
    await archiver.Archiver(database, Spool(spool), folder, actor="test", tell=tell).archive(3)

for line in sys.stdin:
    stop, seconds = line.split()
    if (pid := os.fork()) == 0:
        if float(seconds):
            threading.Timer(float(seconds), kill).start()
        asyncio.run(main(int(stop)))
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@contextmanager
def archiving(url: str, folder: Path, spool_path: Path, *, now: float = 0) -> Iterator[Run]:
    """Keeps three months; `now`, in seconds since 1970, is SQLite's clock, and 0 the machine's."""
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, url, str(folder), str(spool_path), str(now)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        to, back = process.stdin, process.stdout

        def run(stop: int, seconds: float) -> int:
            print(stop, seconds, file=to, flush=True)
            return int(back.readline())

        yield run
