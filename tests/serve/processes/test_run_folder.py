"""Whoever waits for a start reads what a process that takes long is doing."""

from __future__ import annotations

from pathlib import Path

from serve.processes.run_folder import teller, told


def test_the_last_step_that_was_told_is_read(tmp_path: Path) -> None:
    tell = teller(tmp_path, "org/model")
    tell("importing vLLM")
    tell("starting the engine")
    assert told(tmp_path, "org/model") == "starting the engine"
    assert told(tmp_path, "another") == ""


def test_on_another_machine_nothing_is_told() -> None:
    teller(None, "model")("importing vLLM")
    assert told(None, "model") == ""


def test_a_folder_that_cannot_be_written_does_not_end_the_start(tmp_path: Path) -> None:
    (tmp_path / "steps").write_text("a file is in its place")
    teller(tmp_path, "model")("importing vLLM")
    assert told(tmp_path, "model") == ""
