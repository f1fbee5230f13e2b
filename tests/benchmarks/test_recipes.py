"""What a recipe hands to the tool that it starts; the tools themselves are not installed for the tests."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from benchmarks.load.server import ROOT

TELL = '#!/bin/sh\nenv\nprintf \'%s\\n\' "$@" > "$TOLD"\n'


def test_guidellm_is_told_the_server_and_the_model_and_gets_the_key_out_of_sight(tmp_path: Path) -> None:
    tool, told = tmp_path / "guidellm", tmp_path / "told"
    tool.write_text(TELL)
    tool.chmod(0o755)
    done = subprocess.run(
        [ROOT / "benchmarks/recipes/guidellm", "http://127.0.0.1:8000", "a/tokenizer", "--profile", "kind=sweep"],
        env={**os.environ, "PITH_API_KEY": "a-key", "GUIDELLM": str(tool), "TOLD": str(told)},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    words = told.read_text().splitlines()
    assert "GUIDELLM__SPEC__BACKEND__API_KEY=a-key" in done.stdout.splitlines()
    assert not [word for word in words if "a-key" in word]
    assert words[0] == "run" and words[-2:] == ["--profile", "kind=sweep"]
    [backend] = [word for word in words if word.startswith("kind=openai_http")]
    assert "target=http://127.0.0.1:8000,model=pith-mini,request_format=/v1/chat/completions" in backend
