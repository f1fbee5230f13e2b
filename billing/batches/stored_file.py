"""A file of a project as the ledger has it; its content is on disk."""

from dataclasses import dataclass
from typing import Literal

# `batch` is uploaded and read by batches, which write `batch_output`.
Purpose = Literal["batch", "batch_output"]


@dataclass(frozen=True, slots=True)
class StoredFile:
    """`size` is in bytes. Times are seconds since 1970, by the database's clock."""

    id: str
    project_id: str
    filename: str
    purpose: Purpose
    size: int
    created_at: float
    expires_at: float
    # The file store that has its content; empty for one from before there were stores.
    store: str = ""


@dataclass(frozen=True, slots=True)
class FileBounds:
    """What the files of one project may be together."""

    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class FilePage:
    """Which files are listed: at most `limit`, after the file `after`, the newest first unless `oldest_first`."""

    limit: int
    after: str | None = None
    oldest_first: bool = False
    purpose: str | None = None
