"""`pith batch` against a real server on loopback: a file of requests goes out, and what became of it comes back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from models.fake_engine import FakeEngine
from serve.cli.main import app
from tests.serve.batches.running import running_server
from tests.serve.batches.uploading import chat_line, jsonl


@dataclass
class Running:
    """A server, and a project's key for it."""

    url: str
    key_file: Path

    def pith(self, *arguments: str) -> Result:
        whole = ["batch", *arguments, "--url", self.url, "--key-file", str(self.key_file)]
        return CliRunner().invoke(app, whole)

    def json(self, *arguments: str) -> Any:
        return json.loads(self.pith(*arguments, "--json").stdout)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_server(tmp_path_factory.mktemp("served"), FakeEngine()) as found:
        yield Running(*found)


def test_a_file_goes_out_and_comes_back(server: Running, tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_bytes(jsonl([chat_line("a"), chat_line("b", temperature=9)]))
    submitted = server.pith("submit", str(file), "--wait", "--json")
    batch = json.loads(submitted.stdout)
    assert (submitted.exit_code, batch["status"], batch["request_counts"]["failed"]) == (0, "completed", 1)
    printed = server.pith("output", batch["id"])
    assert [json.loads(line)["custom_id"] for line in printed.stdout.splitlines()] == ["a"]
    written = tmp_path / "errors.jsonl"
    assert server.pith("output", batch["id"], "--errors", "--to", str(written)).exit_code == 0
    assert [json.loads(line)["custom_id"] for line in written.read_text().splitlines()] == ["b"]
    assert "completed" in server.pith("status", batch["id"]).stdout
    assert [one["id"] for one in server.json("list")] == [batch["id"]]
    cancelled = server.pith("cancel", batch["id"])
    assert cancelled.exit_code == 1 and "is completed and cannot be cancelled" in str(cancelled.exception)


def test_a_file_that_is_refused_says_which_line(server: Running, tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_bytes(jsonl([chat_line("a"), chat_line("a")]))
    submitted = server.pith("submit", str(file), "--wait")
    assert submitted.exit_code == 1
    assert "line 2: custom_id: 'a' is an earlier line's" in submitted.stderr


def test_the_output_of_a_batch_that_failed_is_why(server: Running, tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_bytes(jsonl([chat_line("a"), chat_line("a")]))
    batch = json.loads(server.pith("submit", str(file), "--wait", "--json").stdout)
    for more in ((), ("--errors",), ("--to", str(tmp_path / "out.jsonl"))):
        printed = server.pith("output", batch["id"], *more)
        assert (printed.exit_code, printed.stdout) == (1, "")
        assert "line 2: custom_id: 'a' is an earlier line's" in str(printed.exception)
    assert not (tmp_path / "out.jsonl").exists()


def test_a_file_that_is_not_there_is_told_of(server: Running, tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_bytes(jsonl([chat_line("a")]))
    batch = json.loads(server.pith("submit", str(file), "--wait", "--json").stdout)
    printed = server.pith("output", batch["id"], "--errors")
    assert (printed.exit_code, printed.stdout) == (0, "")
    assert "is completed, and none of its requests failed" in printed.stderr


def test_what_cannot_be_done_is_one_sentence(server: Running, tmp_path: Path) -> None:
    unknown = server.pith("status", "batch_none")
    assert unknown.exit_code == 1 and "no such batch: batch_none" in str(unknown.exception)
    missing = server.pith("submit", str(tmp_path / "none.jsonl"))
    assert missing.exit_code == 1 and "cannot be read" in str(missing.exception)
    away = Running("http://127.0.0.1:1", server.key_file).pith("list")
    assert away.exit_code == 1 and "cannot be reached" in str(away.exception)
