"""The device that a check runs on: its name, and why it cannot be used. Another process asks torch, since what has
touched a GPU cannot fork an engine."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

QUERY = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
# A number is put on it: a driver that is too old, or a GPU that this torch has no code for, fails only then.
TRIED = """
import torch
torch.ones(1, device="cuda").sum().item()
found = torch.cuda.get_device_properties(0)
print(f"{found.name}, {found.total_memory / 2**20:.0f} MiB, CUDA {torch.version.cuda}")
"""
ANSWER_S = 120.0


@dataclass(frozen=True, slots=True)
class Device:
    """`lacks`: why nothing can run on it; empty where it can."""

    name: str
    lacks: str = ""


def find(kind: str) -> Device:
    if kind == "cpu":
        return Device("CPU: a trial of the code, whose figures mean nothing")
    seen, lacks = _asked([sys.executable, "-c", TRIED])
    listed, _ = _asked(QUERY)
    return Device(listed or seen or "none", lacks and f"torch has no GPU here: {lacks}")


def _asked(command: list[str]) -> tuple[str, str]:
    """What it said, and the last line of why it said nothing."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_S, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return "", str(error)
    if done.returncode:
        return "", (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    return done.stdout.strip(), ""
