"""An id in a small file: made once, by whichever process comes first, and one for all that reach the file."""

import os
import secrets
from contextlib import suppress
from pathlib import Path

from billing.batches.errors import StorageUnavailable
from billing.store.private_files import FILE_MODE, FOLDER_MODE

# In the folder of files: the store as the ledger knows it. Servers that share the folder share it, and a backup has it.
STORE = ".store"
# In `state_dir`: the deployment of a server whose configuration names none.
DEPLOYMENT = "deployment"
ID_CHARS = 32


def kept_id(path: Path) -> str:
    """The id in this file, which is made where there is none. To be read each time: another folder may be mounted over
    it. Raises `StorageUnavailable` where the file holds something else, and `OSError`."""
    try:
        return _read(path)
    except FileNotFoundError:
        path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        _make(path)
        return _read(path)


def _read(path: Path) -> str:
    found = path.read_bytes()[: ID_CHARS + 2].decode("ascii", "replace").strip()
    if len(found) != ID_CHARS or not set(found) <= set("0123456789abcdef"):
        raise StorageUnavailable(f"{path.name} holds no id: it should be {ID_CHARS} digits, from 0 to f")
    return found


def _make(path: Path) -> None:
    """Whole or not at all: another process must not find it empty. Of two that make it, one is first."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_hex(ID_CHARS // 2).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
