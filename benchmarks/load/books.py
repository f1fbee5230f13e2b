"""Check of a server's books after a load: nothing held or waiting, `pith reconcile`, and the month's proof."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.load.kept import Place, kept
from benchmarks.load.mixed import Client
from benchmarks.load.server import CannotRun, Server, run_pith

REST_S, POLL_S = 180.0, 2.0
# What must be back to nothing when nobody asks any more.
AT_REST = (
    "holds",
    "requests under way",
    "usage in the spool",
    "usage the ledger refused",
    "waiting for the log",
)


async def come_to_rest(place: Place) -> list[str]:
    """What has not come back to nothing within the time: an ingress that was left gives its holds back soon."""
    until = time.monotonic() + REST_S
    while True:
        found = await asyncio.to_thread(kept, place)
        left = [f"{name}: {found[name]:g} at the end" for name in AT_REST if found[name]]
        if not left or time.monotonic() > until:
            return left
        await asyncio.sleep(POLL_S)


async def verified(server: Server, client: Client) -> tuple[list[str], str]:
    """What is wrong with the books, and what the verifier says of the client's month, read as a customer reads it."""
    wrong = []
    try:
        await asyncio.to_thread(run_pith, server.folder, "reconcile", "--full")
    except CannotRun as error:
        wrong.append(str(error))
    month = f"{datetime.now(UTC):%Y-%m}"
    proof, program = server.folder / "month.json", server.folder / "verify.py"
    proof.write_bytes(await client.send("GET", f"/v1/usage/proof?month={month}"))
    program.write_bytes(await client.send("GET", "/log/verify.py"))
    said, status = await asyncio.to_thread(_checked, program, proof)
    if status:
        wrong.append(f"the log: {said}")
    return wrong, said


def _checked(program: Path, proof: Path) -> tuple[str, int]:
    command = [sys.executable, str(program), str(proof)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    return (done.stdout + done.stderr).strip(), done.returncode
