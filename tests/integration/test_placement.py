"""Ray, told of the machine that a configuration names, finds a place for every application of it. The applications of
`tiny.yaml` are placed by the session's server."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from serve.config.settings import load_settings
from tests.integration.running import ROOT


def test_every_application_is_placed_on_the_machine_that_the_file_names() -> None:
    configs = [ROOT / "configs/cpu.yaml", ROOT / "configs/gpu.yaml"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.placed", *map(str, configs)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    # Ray may say something between them.
    found = [line for line in done.stdout.splitlines() if line.startswith("{")]
    for config, states in zip(configs, found, strict=True):
        settings = load_settings(config)
        wanted = {f"model:{model.id}" for model in settings.models}
        wanted |= {f"retrieval:{model.id}" for model in settings.retrieval_models if not model.is_hosted}
        wanted |= {f"compress:{model.id}" for model in settings.compression.models} | {"ingress"}
        assert json.loads(states) == dict.fromkeys(wanted, True)
