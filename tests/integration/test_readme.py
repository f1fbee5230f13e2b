"""Every command block of the pages in PAGES, run against the real server, prints what the page says.

A block is run by its language: each `$` line of `console` and each `bash` or `sh` block by bash, `python` by Python.
They run in a folder that is to the server of this module what a reader's clone is to theirs. The address, the name of
the workspace and the id of the key that was made last are changed, alike in all blocks of a page. `make serve` alone is
not run: the server has the default configuration, as an installed pith writes and serves it, and what it printed is the
output. So a new block is run as it is written, and one that nothing could run is refused
(`tests/test_command_blocks.py`).
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from models.embedded.fetching import CannotBeHad, ensure_fetched
from tests.command_blocks import Block, Step, blocks_of, differences, missing_lines
from tests.integration.installed import SITE, folder_with_names_of_ours, run
from tests.integration.missing import cannot_run
from tests.integration.running import PITH, ROOT, Server, free_port, start_server, stop_server
from tests.serve.playground.watched import chromium, watched

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
    """Where commands are run, and how their text is fitted to the server."""

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
        """What the server printed, once it is certain that `make serve` starts one with the same configuration."""
        made = subprocess.run(["make", "-n", "serve"], cwd=ROOT, capture_output=True, text=True, check=True)
        assert "exec .venv/bin/pith serve --config configs/embedded.yaml" in made.stdout
        return "".join(self.server.lines)


@pytest.fixture(scope="module")
def checkpoint() -> Path:
    """The default model's, which is fetched once for all runs of the tests."""
    try:
        return ensure_fetched(ROOT / "var/checkpoints", print)
    except CannotBeHad as error:
        cannot_run(f"the weights of the default model: {error}")


@pytest.fixture(scope="module")
def shipped(by_pip: Path, checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Of an installed pith, with the configuration that `pith init` writes, but for the port of its metrics."""
    folder = tmp_path_factory.mktemp("own")
    elsewhere = folder_with_names_of_ours(tmp_path_factory.mktemp("elsewhere") / "here")
    run(by_pip / "pith", "init", folder, folder=elsewhere)
    config = folder / "pith.yaml"
    config.write_text(config.read_text().replace(f"port: {OPS.partition(':')[2]}", f"port: {free_port()}"))
    (folder / "var/checkpoints").mkdir(parents=True)
    (folder / "var/checkpoints" / checkpoint.name).symlink_to(checkpoint)
    started = start_server(config, folder / "var", installed=(by_pip / "pith", elsewhere))
    yield started
    stop_server(started)


@pytest.fixture(scope="module")
def clones(shipped: Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Clone]:
    """By page: each has a workspace of its own."""
    folder = tmp_path_factory.mktemp("clone")
    (folder / "configs").symlink_to(ROOT / "configs")
    (folder / "tests").symlink_to(ROOT / "tests")
    (folder / "var").symlink_to(shipped.state_dir)
    (folder / ".curlrc").write_text("fail-with-body\n")
    pith = shlex.join(PITH)
    program(folder / ".venv/bin/python", f'exec {shlex.quote(sys.executable)} "$@"')
    config, key = shlex.quote(str(shipped.config)), shlex.quote(str(shipped.state_dir / "demo-key"))
    cases = [
        f'config | -*) exec {pith} "$@" ;;',
        f'chat) exec {pith} "$@" --url {shipped.url} --key-file {key} ;;',
        f'*) exec {pith} "$@" --config {config} ;;',
    ]
    program(folder / ".venv/bin/pith", "\n".join(['case "$1" in', *cases, "esac"]))
    return {page: Clone(folder, shipped, f"{WORKSPACE}-{secrets.token_hex(4)}") for page in BLOCKS}


def program(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("page", "block"),
    [
        pytest.param(
            page, block, id=f"{page} line {block.line}", marks=[] if page == README else [pytest.mark.long]
        )
        for page, found in BLOCKS.items()
        for block in found
    ],
)
def test_a_command_block_prints_what_the_page_shows(
    clones: dict[str, Clone], page: str, block: Block
) -> None:
    clone = clones[page]
    for step in block.steps:
        printed = clone.run(step)
        shown = [clone.fit(line) for line in step.output]
        assert not missing_lines(shown, printed.splitlines()), printed
        if step.json is not None:
            assert not differences(json.loads(step.json), json.loads(printed), VARYING), printed


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
    (row,) = [row for row in rows if row["model"] == "smollm2-135m"]
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


# Greedily, by the engine that serves it: what every machine's conversion and kernels must come to.
ANSWERS = {
    "What is the capital of France?": "The capital of France is Paris.",
}


@pytest.mark.parametrize("question", ANSWERS)
def test_the_default_model_answers(shipped: Server, question: str) -> None:
    asked = {"messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": 60}
    with shipped.client() as http:
        reply = http.post("/v1/chat/completions", json=asked).raise_for_status().json()
    assert reply["model"] == "smollm2-135m"
    assert reply["choices"][0]["message"]["content"] == ANSWERS[question]


@pytest.mark.long
def test_the_playground_gets_the_answer_to_its_first_example_from_a_tenth(shipped: Server) -> None:
    with chromium() as browser, watched(browser, shipped.url) as page:
        page.use_key((shipped.state_dir / "demo-key").read_text().strip())
        page.tab("Compare")
        page.button("Ask both").click()
        page.shows("#compare-difference", "SmolLM2 135M Instruct read")
        assert "11.6 million" in page.text("#side-compressed .said")
        assert page.text("#side-whole .said")


def test_an_installed_pith_has_its_pages_adds_up_its_books_and_keeps_nothing_beside_its_code(
    shipped: Server, by_pip: Path, tmp_path: Path
) -> None:
    with shipped.client() as http:
        for path in ("/", "/playground/main.js", "/docs", "/redoc", "/v1/catalog", "/openapi.json"):
            assert http.get(path).status_code == 200, path
    assert "not installed" not in run(by_pip / "pith", "--version", folder=tmp_path)
    run(by_pip / "pith", "reconcile", "--config", shipped.config, folder=tmp_path)
    assert not (by_pip.parent / SITE / "var").exists()
