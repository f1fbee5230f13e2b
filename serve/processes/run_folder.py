"""The private folder of a running server, which only its owner may enter: sockets, Ray's files, steps of a start."""

import fcntl
import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from urllib.parse import quote

LISTENER_SOCKET = "listener.sock"
COUNTERS_SOCKET = "counters.sock"
LOGS_SOCKET = "logs.sock"
CONTROL_SOCKET = "control.sock"
RAY_FOLDER = "ray"
TEMPORARY_FOLDER = "tmp"
# A Unix socket's path has at most this many bytes.
LONGEST_SOCKET_PATH = 107
# Ray's own are the longest: session_2026-11-22_00-39-55_123456_1234567/sockets/plasma_store, in its folder.
ROOM_FOR_SOCKETS = 72
PREFIX = "pith-"
logger = logging.getLogger("pith")


class FolderInUse(Exception):
    """Another server has this state folder and this port."""


@contextmanager
def run_folder(state_dir: Path, port: int) -> Iterator[Path]:
    """An empty folder until the block ends. What a killed server left here is removed first.

    Raises `FolderInUse`, and `OSError` where it cannot be made.
    """
    runs = state_dir / "run"
    runs.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (runs / f"{port}.lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderInUse(f"another server runs with {state_dir} on port {port}") from None
        logs = logs_folder(state_dir, port)
        _remove_left(lock.name, runs / str(port), logs)
        folder = _made(runs / str(port))
        _note(lock.name, folder)
        try:
            yield folder
        finally:
            _remove(folder, logs)


def logs_folder(state_dir: Path, port: int) -> Path:
    """The folder of the logs of Ray's processes, engines' included, when a run has ended."""
    return state_dir / "logs" / str(port)


def _remove(folder: Path, logs: Path) -> None:
    """Keeps the logs of Ray's processes, in place of those of the last run."""
    found = folder / RAY_FOLDER / "session_latest" / "logs"
    try:
        if found.is_dir():
            shutil.rmtree(logs, ignore_errors=True)
            logs.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            shutil.move(found.resolve(), logs)
    except OSError as error:
        logger.warning("the logs of the run in %s are not kept: %s", folder, error)
    shutil.rmtree(folder, ignore_errors=True)


def _made(wanted: Path) -> Path:
    """`wanted`, or where a socket's path in it would be too long, a folder among the system's temporary ones."""
    if len(os.fsencode(wanted)) + ROOM_FOR_SOCKETS > LONGEST_SOCKET_PATH:
        # Made with mode 0700. Not `TMPDIR`, which may be long as well.
        return Path(tempfile.mkdtemp(prefix=PREFIX, dir="/tmp"))
    wanted.mkdir(mode=0o700)
    wanted.chmod(0o700)
    return wanted


def _note(lock: str, folder: Path) -> None:
    """Notes for the next server where this one's folder is."""
    Path(lock).write_text(str(folder), encoding="utf-8")


def _remove_left(lock: str, wanted: Path, logs: Path) -> None:
    noted = Path(Path(lock).read_text(encoding="utf-8").strip() or wanted)
    if noted.parent == Path("/tmp") and noted.name.startswith(PREFIX) and _is_own_folder(noted):
        _remove(noted, logs)
    if wanted.exists():
        _remove(wanted, logs)


def _is_own_folder(path: Path) -> bool:
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


STEPS_FOLDER = "steps"
Tell = Callable[[str], None]


def teller(run_folder: Path | None, name: str) -> Tell:
    """Function that `name` calls at each step with a few words; without a folder (on another machine) none is kept."""
    return (
        partial(_write, run_folder / STEPS_FOLDER / quote(name, safe="")) if run_folder else lambda step: None
    )


def told(run_folder: Path | None, name: str) -> str:
    """The step that `name` is at, or "" where it has told none."""
    if run_folder is None:
        return ""
    try:
        return (run_folder / STEPS_FOLDER / quote(name, safe="")).read_text()
    except OSError:
        return ""


def _write(path: Path, step: str) -> None:
    # Without room for it the start goes on.
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.write_text(step)
