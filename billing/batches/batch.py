"""A batch and its lines as values: what was asked for, how far it is, and what each line became."""

from dataclasses import dataclass
from typing import Literal

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
    """What a line's result counts while it is in the ledger: as much as in a file."""
    return 0 if result is None else len(result.encode()) + 1
