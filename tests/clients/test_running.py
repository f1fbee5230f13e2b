"""What a client's script is given, and what its test sees of a failure."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.clients.environments import Environment
from tests.clients.running import ClientRun


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClientRun:
    monkeypatch.setattr("tests.clients.running.SCRIPTS", tmp_path)
    monkeypatch.setenv("OPENAI_ORG_ID", "of this machine")
    made = Environment("made-up", tmp_path, Path(sys.executable).parent)
    (tmp_path / "made-up").mkdir()
    return ClientRun(made, "http://127.0.0.1:1", "pith_key", {"chat": "pith-mini"}, tmp_path)


def write(run: ClientRun, code: str) -> None:
    (run.home / "made-up/script.py").write_text(code)


def test_a_script_finds_the_server_and_nothing_of_this_process(run: ClientRun) -> None:
    write(run, "import json, os\nprint('talk')\nprint(json.dumps(dict(os.environ)))")
    found = run("script.py", EXTRA="given")
    assert found["OPENAI_BASE_URL"] == "http://127.0.0.1:1/openai/v1"
    assert found["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:1/anthropic"
    assert found["OPENAI_API_KEY"] == found["ANTHROPIC_API_KEY"] == "pith_key"
    assert (found["PITH_CHAT_MODEL"], found["EXTRA"]) == ("pith-mini", "given")
    assert "OPENAI_ORG_ID" not in found


def test_a_script_that_fails_shows_why(run: ClientRun) -> None:
    write(run, "raise ValueError('of its own')")
    with pytest.raises(AssertionError, match="ValueError: of its own"):
        run("script.py")


def test_a_script_that_hangs_is_ended_with_all_that_it_started(run: ClientRun) -> None:
    write(run, "import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'input()'], stdin=-1).wait()")
    with pytest.raises(AssertionError, match="did not end within"):
        run("script.py", timeout_s=0.3)
