"""What an operator reads when a model, a compressor or the ingress cannot start."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

from serve.cluster.lineup import reason_of

MESSAGE = """The deployment failed to start 3 times in a row. Error:
ray::ServeReplica:m.initialize() (pid=1, ip=127.0.0.1)
RuntimeError: Traceback (most recent call last):
  File "replica.py", line 7, in check_health
    await self.check()
serve.cluster.PortsOpen: it listens on :::39079,
beyond loopback
"""


def failed(*messages: str) -> SimpleNamespace:
    deployments = {str(number): SimpleNamespace(message=text) for number, text in enumerate(messages)}
    return SimpleNamespace(message="Failed to update.", deployments=deployments)


def test_of_a_traceback_the_exception_is_said() -> None:
    told = "Failed to update. serve.cluster.PortsOpen: it listens on :::39079, beyond loopback"
    assert reason_of(failed(MESSAGE)) == told


def test_a_line_that_looks_like_an_exception_does_not_hide_the_one_before() -> None:
    assert "ValueError: no such model" in reason_of(failed("ValueError: no such model\nHint: name another"))


def test_what_is_no_traceback_is_said_whole() -> None:
    assert reason_of(failed("No GPU\nis free.", "")) == "Failed to update. No GPU is free."


def test_ray_is_not_imported_before_the_environment_that_it_reads_once_is_set() -> None:
    code = "import sys; from serve.cluster import drain, launch, ops_port; print('ray' in sys.modules)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "False"
