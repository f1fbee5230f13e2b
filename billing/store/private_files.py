"""Files and folders that no other user of the machine may read: money, secrets, and what customers are charged for."""

import logging
import os
import stat
from pathlib import Path

log = logging.getLogger(__name__)

FILE_MODE = 0o600
FOLDER_MODE = 0o700


def make_file_private(path: Path) -> None:
    """Takes away everybody else's access to a file that exists; logs a warning if that is refused."""
    _set_mode(path, FILE_MODE)


def make_folder_private(path: Path) -> None:
    """The same for a folder, unless it is one that everybody shares, such as /tmp."""
    _set_mode(path, FOLDER_MODE)


def make_database_private(path: Path) -> None:
    """A SQLite file and its companion files, even before they exist: SQLite gives the others the mode of this one."""
    try:
        # Only if no process can have it open: closing a file drops every lock that this process has on it, SQLite's
        # too, and the next process to close the ledger would take itself for the last, and delete its log.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE_MODE))
    except FileExistsError:
        pass
    except OSError:
        # SQLite says what is wrong, when it opens it.
        return
    for suffix in ("", "-wal", "-shm"):
        make_file_private(path.with_name(path.name + suffix))


def _set_mode(path: Path, mode: int) -> None:
    try:
        found = path.stat().st_mode
        if found & 0o077 and not found & stat.S_ISVTX:
            path.chmod(mode)
    except FileNotFoundError:
        return
    except OSError as error:
        log.warning("%s can be read by others, and that cannot be changed: %s", path, error.strerror or error)
