"""SIGHUP in a terminal that is there, and in one that has gone, of which the kernel tells with the same signal."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys

PROGRAM = """
import fcntl, os, signal, sys, termios
if sys.argv[1] == "terminal":
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from serve.cluster.reloader import reload_on_sighup

class FakeReloader:
    def outcome(self, asked, say):
        os.write(1, f"reloaded by {asked.actor}\\n".encode())

def stop(number, frame):
    os.write(1, b"stopped\\n")
    os._exit(0)

signal.signal(signal.SIGTERM, stop)
reload_on_sighup(FakeReloader())
os.write(1, b"ready\\n")
while True:
    signal.pause()
"""
RELOADED = b"reloaded by signal:SIGHUP\n"


def begin(kind: str, stdin: int) -> subprocess.Popen[bytes]:
    program = [sys.executable, "-c", PROGRAM, kind]
    return subprocess.Popen(program, stdin=stdin, stdout=subprocess.PIPE, start_new_session=True)


def test_in_a_terminal_a_signal_reloads_and_its_end_stops() -> None:
    ours, theirs = pty.openpty()
    with begin("terminal", theirs) as process:
        os.close(theirs)
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGHUP)
        assert process.stdout.readline() == RELOADED
        os.close(ours)
        assert process.stdout.readline() == b"stopped\n"
        assert process.wait(20) == 0


def test_without_a_terminal_every_signal_reloads() -> None:
    with begin("none", subprocess.DEVNULL) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        for _ in range(2):
            process.send_signal(signal.SIGHUP)
            assert process.stdout.readline() == RELOADED
        process.kill()
