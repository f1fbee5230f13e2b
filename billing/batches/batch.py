"""Batches, their lines and the files of projects as values, and what can go wrong with them."""

from dataclasses import dataclass
from typing import Literal

from billing.errors import BillingError

BatchStatus = Literal[
    "validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"
]
ENDED: tuple[BatchStatus, ...] = ("failed", "completed", "expired", "cancelled")
# What a batch becomes once its files are written.
BatchEnd = Literal["completed", "cancelled", "expired"]
# `waiting` may be running; `cancelled` and `expired` never ran to their end, and never will.
LineState = Literal["waiting", "completed", "failed", "cancelled", "expired"]


@dataclass(frozen=True, slots=True)
class Home:
    """Where a batch belongs: the file store that has its input, and the deployment whose servers run its lines."""

    store: str
    deployment: str


@dataclass(frozen=True, slots=True)
class NewBatch:
    """What is known of a batch when it is made. `metadata` is JSON. Its lines are charged `price_ppm` millionths of the
    prices of one list, in the name of one key."""

    id: str
    project_id: str
    key_id: str
    input_file_id: str
    endpoint: str
    completion_window: str
    metadata: str | None
    pricing_version: int
    price_ppm: int
    # Seconds from now until what has not run by then is given up.
    window_s: float


@dataclass(frozen=True, slots=True)
class Counts:
    """The lines of a batch, and the tokens that they used: those once it has ended."""

    total: int = 0
    completed: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Moments:
    """When a batch became what, in seconds since 1970 by the database's clock; None: it did not."""

    created: float
    expires: float
    in_progress: float | None = None
    finalizing: float | None = None
    completed: float | None = None
    failed: float | None = None
    cancelling: float | None = None
    cancelled: float | None = None
    expired: float | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as it is now. `errors` is JSON: why its input file was refused."""

    new: NewBatch
    status: BatchStatus
    ends_as: BatchEnd
    counts: Counts
    moments: Moments
    errors: str | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None

    @property
    def id(self) -> str:
        return self.new.id

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED


@dataclass(frozen=True, slots=True)
class NewLine:
    """Where a line is in the input file, in bytes. `number` counts from 1, as editors do, empty lines included."""

    number: int
    custom_id: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class ClaimedLine:
    """A line that one attempt may end, as long as nobody else claims it. `attempts` counts this one."""

    batch: NewBatch
    line: NewLine
    claim: str
    attempts: int


@dataclass(frozen=True, slots=True)
class LineTokens:
    """What a line used, as its usage event has it."""

    prompt: int = 0
    cached: int = 0
    completion: int = 0


@dataclass(frozen=True, slots=True)
class EndedLine:
    """What became of a line, for the file that it is written to."""

    number: int
    custom_id: str
    state: LineState
    result: str | None


def kept_bytes(result: str | None) -> int:
    """Bytes that a line's result counts while it is in the ledger: as much as in a file."""
    return 0 if result is None else len(result.encode()) + 1


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


class UnknownFile(BillingError, LookupError):
    """No file of this project has that id, or its time is over."""

    def __init__(self, file_id: str) -> None:
        super().__init__(f"no such file: {file_id}")


class UnknownBatch(BillingError, LookupError):
    """No batch of this project has that id."""

    def __init__(self, batch_id: str) -> None:
        super().__init__(f"no such batch: {batch_id}")


class FilesFull(BillingError):
    """With the new file, the project would have more files, or more bytes of them, than it may."""

    def __init__(self, *, most_files: int, most_bytes: int) -> None:
        super().__init__(
            f"the project's files may be {most_files} at most, with {most_bytes} bytes together; delete some first"
        )


class ResultsFull(BillingError):
    """The project's files, and the results of its batches that are not in a file yet, are as large as they may be."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__(
            f"the project's files and the results of its batches have {most_bytes} bytes together, which is all that "
            "they may have; delete some files first"
        )


class StorageFull(BillingError):
    """There is no room left where files are kept."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"there is no room for files on this server: {reason}")


class StorageUnavailable(BillingError):
    """The folder in which files are kept cannot be read or written."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"this server's files cannot be read or written: {reason}")


class StoredElsewhere(StorageUnavailable):
    """The file is kept in a file store that this server does not reach."""

    def __init__(self, file_id: str, store: str, own: str) -> None:
        has_it = f"file store {store} has {file_id}" if store else f"it is not known yet who has {file_id}"
        BillingError.__init__(self, f"{has_it}, and this server reaches {own} alone")


class FileInUse(BillingError):
    """A batch that has not ended reads the file."""

    def __init__(self, file_id: str, batch_id: str) -> None:
        super().__init__(f"file {file_id} is the input of {batch_id}, which has not ended; cancel that first")


class BatchEnded(BillingError):
    """The batch cannot be cancelled any more."""

    def __init__(self, batch_id: str, status: str) -> None:
        super().__init__(f"batch {batch_id} is {status} and cannot be cancelled")


class TooManyBatches(BillingError):
    """The project has as many batches that have not ended as it may."""

    def __init__(self, most: int) -> None:
        super().__init__(f"the project has {most} batches that have not ended, and may have no more")


class LostClaim(BillingError):
    """Somebody else has taken over what this process was working on: nothing of it was written."""
