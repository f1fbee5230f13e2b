"""The `openai` npm client against the real server, through a small script that prints what it got as JSON."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.integration.running import Server

HERE = Path(__file__).parent / "openai_node"
# Kept between runs: the package is tens of megabytes.
INSTALLED = Path(__file__).parents[2] / "var" / "openai_node"
FILES = ("package.json", "package-lock.json", "chat.mjs")
OLDEST_NODE = 18
INSTALL_S = 180
RUN_S = 90

Run = Callable[[str], dict[str, Any]]


def cannot_run(why: str) -> NoReturn:
    """CI promises this evidence; a developer's machine may lack what it takes."""
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)


@pytest.fixture(scope="module")
def folder() -> Path:
    """A folder with the script and the client installed beside it, as the lock says."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        cannot_run(f"node and npm are not on PATH: install Node {OLDEST_NODE} or later to run this test")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True, timeout=RUN_S)
    if int(version.stdout.strip().removeprefix("v").split(".")[0]) < OLDEST_NODE:
        cannot_run(f"node is {version.stdout.strip()}: install Node {OLDEST_NODE} or later to run this test")
    INSTALLED.mkdir(parents=True, exist_ok=True)
    if not is_installed():
        install(npm)
    for name in FILES:
        shutil.copyfile(HERE / name, INSTALLED / name)
    return INSTALLED


def is_installed() -> bool:
    lock, package = INSTALLED / "package-lock.json", INSTALLED / "node_modules" / "openai" / "package.json"
    same = lock.is_file() and lock.read_bytes() == (HERE / "package-lock.json").read_bytes()
    return same and package.is_file()


def install(npm: str) -> None:
    for name in ("package.json", "package-lock.json"):
        shutil.copyfile(HERE / name, INSTALLED / name)
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    try:
        done = subprocess.run(
            command, cwd=INSTALLED, capture_output=True, text=True, timeout=INSTALL_S, check=False
        )
        failure = done.stderr.strip()[-1000:] if done.returncode else ""
    except subprocess.TimeoutExpired:
        failure = f"no end after {INSTALL_S} s"
    if failure:
        shutil.rmtree(INSTALLED)
        cannot_run(f"npm could not install the openai package; `npm ci` in {HERE} shows why: {failure}")


@pytest.fixture
def run(server: Server, folder: Path) -> Run:
    def run(action: str) -> dict[str, Any]:
        done = subprocess.run(
            ["node", "chat.mjs", action],
            cwd=folder,
            env={**os.environ, "PITH_URL": server.url, "PITH_KEY": server.key},
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    return run


def test_a_stream_makes_the_plain_reply_with_its_usage_and_service(run: Run) -> None:
    plain, stream = run("plain"), run("stream")
    assert plain["text"]
    assert stream["text"] == plain["text"]
    assert stream["chunks"] > 10
    assert stream["choices"] == []
    assert stream["usage"] == plain["usage"]
    assert plain["usage"]["completion_tokens"] > 0
    assert stream["service"] == plain["service"]
    assert plain["service"]["metering"] == {"persisted": True, "status": "persisted"}


def test_an_error_shows_its_message(run: Run) -> None:
    error = run("error")
    assert (error["name"], error["status"]) == ("BadRequestError", 400)
    assert "tools: this model does not call tools" in error["message"]
    assert (error["type"], error["param"], error["code"]) == (
        "invalid_request_error",
        "tools",
        "unsupported_option",
    )
    assert error["requestID"]


def test_a_refused_stream_shows_its_message(run: Run) -> None:
    error = run("stream-error")
    assert (error["name"], error["status"]) == ("UnprocessableEntityError", 422)
    assert "body.temperature" in error["message"]
    assert error["param"] == "temperature"


def test_a_response_shows_its_headers(run: Run) -> None:
    found = run("headers")
    assert found["metering"] == "persisted"
    assert found["request_id"]
