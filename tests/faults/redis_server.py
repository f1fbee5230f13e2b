"""A Redis of the harness's own, on loopback, that may be killed and started again."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from tests.faults.postgres import MissingProgram, free_port

START_S = 120.0


class OwnRedis:
    """Keeps nothing on disk: what it counted is gone with it."""

    def __init__(self) -> None:
        program = shutil.which("redis-server")
        if program is None:
            raise MissingProgram(
                "Redis was not found; install it (Debian: apt-get install --no-install-recommends redis-server)"
            )
        self._program = program
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = Path(tempfile.mkdtemp(prefix="pith-faults-redis-"))

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Returns when it answers. Raises `TimeoutError`."""
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self._process = subprocess.Popen(
            [self._program, *options, "--dir", str(self._folder)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + START_S
        while not self._answers():
            if time.monotonic() > deadline:
                raise TimeoutError(f"Redis did not answer within {START_S:g} s")
            time.sleep(0.02)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(START_S)

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answers(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as link:
            link.sendall(b"PING\r\n")
            return link.recv(16).startswith(b"+PONG")
        return False
