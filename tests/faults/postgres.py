"""A PostgreSQL of the harness's own, on loopback, that may be killed, stopped, resumed and started again."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from benchmarks.ledger.postgres_server import memory_folder

START_S = 120.0
URL = "postgresql+asyncpg://pith@127.0.0.1:{port}/{name}"


class MissingProgram(Exception):
    """A server that the harness needs is not installed; the message says how to install it."""


class OwnPostgres:
    """One cluster in a temporary folder, or in `folder`, which is removed at the end and may hold one already. Unless
    `settings` say otherwise it has no fsync, since only its processes are killed, never the machine."""

    def __init__(
        self,
        folder: Path | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._settings = {"fsync": "off", **(settings or {})}
        self._environment = environment
        self._binaries = _binaries()
        self._user = _unprivileged_user()
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped: list[psutil.Process] = []
        self._folder = folder or Path(tempfile.mkdtemp(prefix="pith-faults-postgres-", dir=memory_folder()))
        self._own(self._folder)
        if self.data.exists():
            for path in (self.data, *self.data.rglob("*")):
                self._own(path)
            return
        # Small segments, so that a short run has many.
        make = [self._binaries / "initdb", "-D", self.data, "-U", "pith", "-A", "trust", "-E", "UTF8"]
        subprocess.run(
            [*make, "--no-sync", "--wal-segsize=1"] if folder else [*make, "--no-sync"],
            check=True,
            capture_output=True,
            user=self._user,
            cwd=self._folder,
        )

    def _own(self, path: Path) -> None:
        if self._user is not None:
            shutil.chown(path, self._user)

    @property
    def data(self) -> Path:
        return self._folder / "data"

    def url(self, name: str) -> str:
        return URL.format(port=self.port, name=name)

    def start(self) -> None:
        """Returns when it answers. Raises `TimeoutError`."""
        deadline = time.monotonic() + START_S
        self._process = self._launched()
        ask = [self._binaries / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        while subprocess.run(ask, check=False).returncode != 0:
            if time.monotonic() > deadline:
                raise TimeoutError(f"PostgreSQL did not answer within {START_S:g} s; see {self._folder}/log")
            time.sleep(0.02)
            if self._process.poll() is not None:
                # It will not start before the last backend of the one that was killed has gone.
                self._process = self._launched()

    def _launched(self) -> subprocess.Popen[bytes]:
        settings = {
            **self._settings,
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": self._folder,
            "max_connections": 200,
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(
                [self._binaries / "postgres", "-D", self.data, *options],
                stdout=log,
                stderr=log,
                user=self._user,
                cwd=self._folder,
                env=self._environment,
                start_new_session=True,
            )

    def kill(self) -> None:
        """SIGKILL for the postmaster and every backend at once."""
        assert self._process is not None
        for process in self._family():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait(START_S)

    def shut_down(self) -> None:
        """Everything is on the disk afterwards."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        self._process.wait(START_S)

    def stop(self) -> None:
        """SIGSTOP: connections stay open, and nobody answers on them."""
        self._stopped = self._family()
        for process in self._stopped[1:]:
            with suppress(psutil.NoSuchProcess):
                process.suspend()

    def resume(self) -> None:
        for process in self._stopped:
            with suppress(psutil.NoSuchProcess):
                process.resume()
        self._stopped = []

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.resume()
            # Immediate shutdown: nobody needs this cluster's data again.
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(START_S)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _family(self) -> list[psutil.Process]:
        """The postmaster, which is stopped from here on, and its children."""
        assert self._process is not None
        parent = psutil.Process(self._process.pid)
        # Stopped first, or it could start a child that is not in the list.
        parent.suspend()
        return [parent, *parent.children(recursive=True)]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _binaries() -> Path:
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).resolve().parent
    # Debian keeps the server's programs off the path.
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: path.parts[-3])
    if not found:
        raise MissingProgram("PostgreSQL was not found; install it (Debian: apt-get install postgresql)")
    return found[-1].parent


def _unprivileged_user() -> str | None:
    """PostgreSQL refuses to run as root: the user to run it as, or None for the present one."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in ("postgres", "nobody") if name in known), None)
