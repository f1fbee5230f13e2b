"""What the process that workers are forked from has loaded: it must be safe to fork."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from compression.pipeline.spec import ModelSpec
from tests.compression.conftest import TOKENIZER

ROOT = Path(__file__).parents[3]


def loaded(program: str, spec: ModelSpec) -> list[str]:
    """The names of modules of note and the number of threads, after a program was loaded."""
    code = (
        "import os, sys; from compression.workers.programs import *; from compression.pipeline.spec import *;"
        "from compression.pipeline.spec import *; from compression.flags import *;"
        "from compression.choosing.selection import *;"
        f"from compression.segmentation import *; {program}({spec!r});"
        "print(*[name for name in ('torch', 'numpy') if name in sys.modules], len(os.listdir('/proc/self/task')))"
    )
    environment = {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_the_lexical_program_has_one_thread_and_no_torch() -> None:
    assert loaded("plain", ModelSpec("l", "lexical", str(TOKENIZER), "mini")) == ["numpy", "1"]


@pytest.mark.integration
@pytest.mark.parametrize(("device", "has_torch"), [("cpu", True), ("cuda", False), ("cuda:1", False)])
def test_what_is_loaded_for_a_network_has_one_thread_and_has_not_touched_cuda(
    device: str, has_torch: bool
) -> None:
    spec = ModelSpec("w", "token_classifier", str(TOKENIZER), "mini", "some/checkpoint", device=device)
    *names, threads = loaded("neural", spec)
    assert ("torch" in names) is has_torch and threads == "1"
