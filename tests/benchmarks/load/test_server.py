"""That a benchmark's server ends with it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil

PROGRAM = """
import asyncio, sys
from pathlib import Path
from benchmarks.load.server import Server

# It never answers.
command = [sys.executable, "-c", "import time; time.sleep(600)"]
server = Server("asleep", "none", command, {}, Path(sys.argv[1]), "http://127.0.0.1:9")

async def run():
    starting = asyncio.create_task(server.start())
    while server.process is None:
        await asyncio.sleep(0)
    print(server.process.pid, flush=True)
    await starting

try:
    asyncio.run(run())
finally:
    server.stop()
"""


def test_a_server_is_stopped_where_its_benchmark_is_told_to_stop(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as program:
        assert program.stdout is not None
        server = psutil.Process(int(program.stdout.readline()))
        program.send_signal(signal.SIGTERM)
        assert program.wait(60) == 1
    assert not server.is_running()
