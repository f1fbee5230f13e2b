"""Completion in a real bash, as `pith --install-completion` sets it up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
# `true`, so that bash stays: it is the parent by which the current shell is known.
INSTALL = "pith --install-completion; true"
COMPLETE = """
. ~/.bashrc
COMP_WORDS=(pith usa) COMP_CWORD=1
_pith_completion pith
echo "${COMPREPLY[@]}"
"""


def test_bash_completes_a_verb_after_it_was_installed(tmp_path: Path) -> None:
    pith = tmp_path / "bin/pith"
    pith.parent.mkdir()
    pith.write_text(f"#!{sys.executable}\nfrom serve.cli.main import main\n\nmain()\n")
    pith.chmod(0o755)
    environment = os.environ | {
        "HOME": str(tmp_path),
        "PATH": f"{pith.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }

    def bash(script: str) -> str:
        done = subprocess.run(
            ["bash", "--norc", "-c", script], env=environment, cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "bash completion installed" in bash(INSTALL)
    assert bash(COMPLETE).split() == ["usage"]
