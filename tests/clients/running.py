"""Runs a released client against a server, in its environment, as a user would: by a base URL and a key."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.clients.environments import Environment

SCRIPTS = Path(__file__).parent / "scripts"
RUN_S = 120


@dataclass(frozen=True)
class ClientRun:
    """`run("chat.py")` runs `tests/clients/scripts/CLIENT/chat.py` and returns the JSON of its last line.

    The script finds the address and the key where OpenAI's and Anthropic's SDKs look for them, and more in `PITH_…`:
    `variables()` has them all. Nothing else of this process's environment reaches it.
    """

    environment: Environment
    url: str
    key: str
    models: dict[str, str]
    home: Path

    def __call__(self, script: str, *arguments: str, timeout_s: float = RUN_S, **variables: str) -> Any:
        """Fails with what the script wrote to stderr where it does not exit with 0 within `timeout_s`."""
        path = SCRIPTS / self.environment.name / script
        done = self._run([*self.environment.command(path), *arguments], timeout_s, variables)
        assert done.returncode == 0, f"{path.name} exits with {done.returncode}:\n{done.stderr[-6000:]}"
        return json.loads(done.stdout.strip().splitlines()[-1])

    def program(
        self, name: str, *arguments: str, timeout_s: float = RUN_S, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command of the client, such as `aider`; whatever its exit status is."""
        return self._run([str(self.environment.programs / name), *arguments], timeout_s, variables)

    def variables(self) -> dict[str, str]:
        found = {
            "PATH": f"{self.environment.programs}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "TMPDIR": str(self.home),
            "PITH_URL": self.url,
            "PITH_KEY": self.key,
            "OPENAI_BASE_URL": f"{self.url}/openai/v1",
            "OPENAI_API_KEY": self.key,
            "ANTHROPIC_BASE_URL": f"{self.url}/anthropic",
            "ANTHROPIC_API_KEY": self.key,
        }
        return found | {f"PITH_{kind.upper()}_MODEL": model for kind, model in self.models.items()}

    def _run(
        self, command: list[str], timeout_s: float, variables: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        process = subprocess.Popen(
            command,
            cwd=self.home,
            env=self.variables() | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            raise AssertionError(f"{command} did not end within {timeout_s:g} s:\n{out}\n{err}") from None
        return subprocess.CompletedProcess(command, process.returncode, out, err)
