"""A PostgreSQL of one's own, on loopback and gone afterwards: for this benchmark and for the tests."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MEMORY = Path("/dev/shm")
# Of a few servers: each keeps up to a gigabyte of its log.
MEMORY_NEEDED = 4 * 2**30


class PostgresNotFound(RuntimeError):
    """No PostgreSQL server is installed; the message says how to get one."""

    def __init__(self) -> None:
        super().__init__("PostgreSQL was not found; install it (Debian: apt-get install postgresql)")


@contextmanager
def private_postgres(*, fsync: bool, folder: Path | None = None) -> Iterator[str]:
    """The URL prefix, `postgresql+asyncpg://user@host:port`, of a server with otherwise default settings.

    Without `fsync` it survives the death of a process, not of the machine, and is in memory where that has room. Raises
    `PostgresNotFound`.
    """
    binaries = postgres_binaries()
    if binaries is None:
        raise PostgresNotFound
    user = _unprivileged_user()
    if folder is None and not fsync:
        folder = memory_folder()
    with tempfile.TemporaryDirectory(prefix="pith-postgres-", dir=folder) as own:
        data = Path(own) / "data"
        if user is not None:
            shutil.chown(own, user)

        def run(*command: str | Path) -> None:
            subprocess.run(command, check=True, capture_output=True, user=user, cwd=own)

        run(binaries / "initdb", "-D", data, "-U", "pith", "-A", "trust", "-E", "UTF8", "--no-sync")
        port = _free_port()
        options = f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories={own}"
        control = (binaries / "pg_ctl", "-D", data, "-w", "-l", Path(own) / "log")
        run(*control, "-o", options if fsync else f"{options} -c fsync=off", "start")
        try:
            yield f"postgresql+asyncpg://pith@127.0.0.1:{port}"
        finally:
            run(*control, "-m", "immediate", "stop")


def memory_folder() -> Path | None:
    """Where files are in memory, or None where there is too little: a database is made there in a tenth of the time."""
    if not os.access(MEMORY, os.W_OK) or shutil.disk_usage(MEMORY).free < MEMORY_NEEDED:
        return None
    return MEMORY


def postgres_binaries() -> Path | None:
    """The folder of the server's programs, or None."""
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).resolve().parent
    # Debian keeps the server's programs off the path.
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return found[-1].parent if found else None


def _unprivileged_user() -> str | None:
    """PostgreSQL refuses to run as root: the user to run it as, or None for the present one."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in ("postgres", "nobody") if name in known), None)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
