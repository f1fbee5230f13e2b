"""Ray, told of the machine that a configuration names, finds a place for every application of it. The applications of
`embedded.yaml` are placed by the session's server, those of `gpu.yaml` in test_pretend_gpu.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from serve.config.settings import load_settings
from tests.integration.running import ROOT


def test_every_application_is_placed_on_the_machine_that_the_file_names() -> None:
    config = ROOT / "configs/cpu.yaml"
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.placed", str(config)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    states = json.loads(done.stdout.splitlines()[-1])
    settings = load_settings(config)
    wanted = {f"model:{model.id}" for model in settings.models}
    wanted |= {f"compress:{model.id}" for model in settings.compression.models} | {"ingress"}
    assert states == dict.fromkeys(wanted, "RUNNING")
