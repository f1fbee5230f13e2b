"""Who administers: the keys in a file of the operator's, one a line, read again whenever the file changes."""

import hashlib
import hmac
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from billing.store.private_files import FILE_MODE, make_file_private
from serve.http.errors import WrongAdminKey

FILE = "admin-key"
PREFIX = "pith_admin_"
# A shorter one could be guessed.
MIN_CHARS = 32
MOST_KEYS = 20


@dataclass(frozen=True, slots=True)
class Administrator:
    """The holder of an admin key. `id` names the key in the audit log, and says nothing of its secret."""

    id: str

    @property
    def actor(self) -> str:
        return f"admin:{self.id}"


class AdminKeys:
    """The keys in one file. Lines that begin with `#` are comments; without a usable key nobody is let in."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_at: tuple[int, int] | None = None
        self._digests: dict[bytes, Administrator] = {}

    def administrator(self, given: str) -> Administrator:
        """Compared in constant time with every key. Raises `WrongAdminKey`."""
        digest, found = _digest(given), None
        for known, administrator in self._current().items():
            if hmac.compare_digest(digest, known):
                found = administrator
        if found is None:
            raise WrongAdminKey
        return found

    def _current(self) -> dict[bytes, Administrator]:
        try:
            stat = self._path.stat()
            stamp = (stat.st_mtime_ns, stat.st_size)
            if stamp != self._read_at:
                lines = self._path.read_text(encoding="utf-8").split("\n")
                self._digests, self._read_at = _keys(lines), stamp
        except (OSError, UnicodeDecodeError):
            # Fails closed: a file that is gone ends its keys.
            self._digests, self._read_at = {}, None
        return self._digests


def make_admin_key(path: Path) -> None:
    """A new key in the file (mode 0600) where there is none yet. Raises `OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
    except FileExistsError:
        make_file_private(path)
        return
    with os.fdopen(descriptor, "w") as file:
        file.write(f"{PREFIX}{secrets.token_hex(32)}\n")


def _keys(lines: list[str]) -> dict[bytes, Administrator]:
    keys = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    return {
        _digest(key): Administrator(_digest(key).hex()[:8])
        for key in keys[:MOST_KEYS]
        if len(key) >= MIN_CHARS
    }


def _digest(key: str) -> bytes:
    return hashlib.sha256(b"pith-admin-key-v1:" + key.encode()).digest()
