"""Every command block of the pages in PAGES, run against the real server, prints what the page says.

A block is run by its language: each `$` line of `console` and each `bash` or `sh` block by bash, `python` by Python.
They run in a folder that is to the session's server what a reader's clone is to theirs. The address, the name of the
workspace and the id of the key that was made last are changed, alike in all blocks of a page. `make serve` alone is not
run again: the session's server is what it starts, and what that server printed is its output. So a new block is run as
it is written, and one that nothing could run is
refused (`tests/test_command_blocks.py`).
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.command_blocks import Block, Step, blocks_of, differences, missing_lines
from tests.integration.running import PITH, ROOT, Server

README = "README.md"
PAGES = (README, "docs/operating.md", "docs/operations/first-day.md")
BLOCKS = {page: blocks_of((ROOT / page).read_text()) for page in PAGES}
ADDRESS, OPS, WORKSPACE, KEY, START = "127.0.0.1:8000", "127.0.0.1:9464", "acme", "KEY_ID", "make serve"
KEY_MADE = re.compile(r"^This key is shown once\. Id: (\w+)$", re.MULTILINE)
RUN_S = 120
# Where time, or how a CPU rounds, decides. What the reply used is compared with its usage row below.
VARYING = frozenset(
    {
        "latency_ms",
        "evidence_kept_probability",
        "completion_tokens",
        "total_tokens",
        "request_cost_usd",
    }
)


@dataclass
class Clone:
    """Where commands are run, and how their text is fitted to the session's server."""

    folder: Path
    server: Server
    workspace: str
    key_id: str = KEY

    def fit(self, text: str) -> str:
        ports = {ADDRESS: f"127.0.0.1:{self.server.port}", OPS: f"127.0.0.1:{self.server.ops_port}"}
        names = {**ports, WORKSPACE: self.workspace, KEY: self.key_id}
        for written, here in names.items():
            text = text.replace(written, here)
        return text

    def run(self, step: Step) -> str:
        """What the step prints. Fails where it does not end with 0."""
        if step.code == START:
            return self.start()
        interpreter = [".venv/bin/python", "-c"] if step.language == "python" else ["bash", "-euc"]
        done = subprocess.run(
            [*interpreter, self.fit(step.code)],
            cwd=self.folder,
            # curl ends with 22, and not with 0, for a status of 400 or more.
            env={
                **os.environ,
                "PATH": f"{self.folder}/.venv/bin:{os.environ['PATH']}",
                "PYTHONPATH": str(ROOT),
                "CURL_HOME": str(self.folder),
            },
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=False,
        )
        assert done.returncode == 0, f"{step.code}\n{done.stdout}{done.stderr}"
        if made := KEY_MADE.search(done.stdout):
            self.key_id = made[1]
        return done.stdout

    def start(self) -> str:
        """What the session's server printed, once it is certain that `make serve` starts the same."""
        made = subprocess.run(["make", "-n", "serve"], cwd=ROOT, capture_output=True, text=True, check=True)
        assert "exec .venv/bin/pith serve --config configs/embedded.yaml" in made.stdout
        if self.server.process is None:
            pytest.skip("only a server that the tests started shows what it printed")
        return "".join(self.server.lines)


@pytest.fixture(scope="module")
def clones(server: Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Clone]:
    """By page: each has a workspace of its own."""
    folder = tmp_path_factory.mktemp("clone")
    (folder / "configs").symlink_to(ROOT / "configs")
    (folder / "var").symlink_to(server.state_dir)
    (folder / ".curlrc").write_text("fail-with-body\n")
    pith = shlex.join(PITH)
    program(folder / ".venv/bin/python", f'exec {shlex.quote(sys.executable)} "$@"')
    # The session's server has a configuration of its own in place of the default one, but for its port.
    config, key = shlex.quote(str(server.config)), shlex.quote(str(server.state_dir / "demo-key"))
    cases = [
        f'config | -*) exec {pith} "$@" ;;',
        f'chat) exec {pith} "$@" --url {server.url} --key-file {key} ;;',
        f'*) exec {pith} "$@" --config {config} ;;',
    ]
    program(folder / ".venv/bin/pith", "\n".join(['case "$1" in', *cases, "esac"]))
    return {page: Clone(folder, server, f"{WORKSPACE}-{secrets.token_hex(4)}") for page in BLOCKS}


def program(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("page", "block"),
    [
        pytest.param(page, block, id=f"{page} line {block.line}")
        for page, found in BLOCKS.items()
        for block in found
    ],
)
def test_a_command_block_prints_what_the_page_shows(
    clones: dict[str, Clone], page: str, block: Block
) -> None:
    clone = clones[page]
    for step in block.steps:
        printed = without_savings(clone.run(step))
        shown = [clone.fit(line) for line in step.output]
        assert not missing_lines(shown, printed.splitlines()), printed
        if step.json is not None:
            assert not differences(json.loads(step.json), json.loads(printed), VARYING), printed


def without_savings(printed: str) -> str:
    """`pith usage` has columns of what compression saved where anything was. Other tests of the session have saved
    something, and a reader's first request has not."""
    head, *rows = printed.splitlines() or [""]
    last = re.search(r"(?<= )written_off_usd(?= +tokens_saved)", head)
    return printed if last is None else "\n".join(line[: last.end()] for line in (head, *rows))


def test_the_usage_row_is_what_the_first_curl_used(clones: dict[str, Clone]) -> None:
    clone = clones[README]
    ask, usage = (block.steps[0] for block in BLOCKS[README][1:3])
    before = sums(clone.server)
    reply = json.loads(clone.run(ask))
    after = sums(clone.server)
    grown = {name: after[name] - before[name] for name in after}
    assert grown == pytest.approx(row_of(reply), abs=1e-12)
    # The README's own row is of the README's own reply.
    names, row = usage.output[0].split()[1:], usage.output[1].split()[1:]
    shown = dict(zip(names, map(float, row), strict=True))
    assert {name: shown[name] for name in grown} == row_of(json.loads(str(ask.json)))


def sums(server: Server) -> dict[str, float]:
    """The row of the default model."""
    rows = server.pith("usage", "--by", "model")
    (row,) = [row for row in rows if row["model"] == "pith-mini"]
    return {name: float(row[name]) for name in ("requests", "prompt_tokens", "completion_tokens", "cost_usd")}


def row_of(reply: dict[str, Any]) -> dict[str, float]:
    """What one reply says that it used, as the usage row has it."""
    used = reply["usage"]
    return {
        "requests": 1,
        "prompt_tokens": used["prompt_tokens"],
        "completion_tokens": used["completion_tokens"],
        "cost_usd": reply["service"]["billing"]["request_cost_usd"],
    }
