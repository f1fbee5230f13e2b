"""The code that is on the disk now, which may be newer than that of the process that asks."""

from __future__ import annotations

import subprocess
import sys

CHECK_S = 180.0
# What the HTTP processes will import; and the newest revision of the ledger that this code knows.
PROGRAM = """
import serve.app, serve.cluster.deployments.ingress
from billing.store.migration import newest_revision
print(newest_revision())
"""


class BrokenCode(Exception):
    """It cannot be imported."""


def newest_revision_on_disk() -> str:
    """In a process of its own, which imports it. Raises `BrokenCode`."""
    # -P: nothing is imported from the folder in which the server was started.
    command = [sys.executable, "-P", "-c", PROGRAM]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=CHECK_S, check=False)
    except subprocess.TimeoutExpired:
        raise BrokenCode(f"the code on the disk is not imported within {CHECK_S:g} s") from None
    # Its exit status may have been taken by who reaps orphans.
    if done.returncode or not done.stdout.strip():
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise BrokenCode(f"the code on the disk cannot be imported: {last}")
    return done.stdout.strip().splitlines()[-1]
