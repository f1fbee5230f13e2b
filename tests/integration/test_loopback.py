"""Where Ray's insides have changed so that the hook does nothing, `pith serve` ends instead of being open to others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import yaml

from tests.integration.running import ROOT, free_port, write_config

# As if Ray called something else than what the hook replaces.
WITHOUT_THE_HOOK = """
import serve.cluster.launch
serve.cluster.launch.SETUP_HOOK = "gc.collect"
from serve.cli.main import main
main()
"""


def test_a_server_whose_replicas_would_be_open_to_others_does_not_start(tmp_path: Path) -> None:
    path = write_config(tmp_path, ingress_replicas=1)
    given = yaml.safe_load(path.read_text())
    given |= {"models": [{**given["models"][0], "engine": {"kind": "fake"}}], "compression": {}}
    path.write_text(yaml.safe_dump(given))
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_THE_HOOK, "serve", "--config", str(path), "--port", str(free_port())],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode != 0
    assert "beyond this machine's loopback" in done.stderr, done.stderr
    assert "ready: http" not in done.stdout
