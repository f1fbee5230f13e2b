"""The disk of the spool, and of SQLite's ledger, which can be filled: a small one, or a limit on file size."""

from __future__ import annotations

import resource
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

SIZE_KIB = 4096
# Enough for what the servers have written by then, and too little for a spool of more than a few events.
LIMIT_BYTES = 64 * 1024
BLOCK = b"\0" * 4096


class TinyDisk:
    """A tmpfs of some megabytes. Writing to it when it is full fails with ENOSPC, as on a real full disk."""

    kind = "a full tmpfs"

    def __init__(self, folder: Path, size_kib: int) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size_kib}k", "tmpfs", str(folder)]
        subprocess.run(mount, check=True, capture_output=True)

    def fill(self, pids: Sequence[int]) -> None:
        with suppress(OSError), (self.folder / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(BLOCK)

    def free(self, pids: Sequence[int]) -> None:
        (self.folder / "filler").unlink(missing_ok=True)

    def close(self) -> None:
        subprocess.run(["umount", str(self.folder)], check=True, capture_output=True)


class LimitedFiles:
    """Where nothing may be mounted: the servers may make no file larger, so that their writes fail with EFBIG."""

    kind = "RLIMIT_FSIZE"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def fill(self, pids: Sequence[int]) -> None:
        self._limit(pids, LIMIT_BYTES)

    def free(self, pids: Sequence[int]) -> None:
        self._limit(pids, resource.RLIM_INFINITY)

    def close(self) -> None:
        """Nothing was mounted."""

    @staticmethod
    def _limit(pids: Sequence[int], most_bytes: int) -> None:
        for pid in pids:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (most_bytes, resource.RLIM_INFINITY))


SpoolDisk = TinyDisk | LimitedFiles


def spool_disk(folder: Path, size_kib: int = SIZE_KIB) -> SpoolDisk:
    if shutil.which("mount"):
        with suppress(subprocess.CalledProcessError):
            return TinyDisk(folder, size_kib)
    return LimitedFiles(folder)
