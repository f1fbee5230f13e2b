"""The files of an archived month: their names, how they come to be there whole, and the manifest that names them."""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from heapq import merge
from pathlib import Path
from typing import Any, BinaryIO

from sqlalchemy import Boolean, Integer

from billing.errors import ArchiveDamaged, ArchiveRefused
from billing.parquet import rows_of
from billing.rollups.checkpoint_sql import Stretch, Sum
from billing.rollups.event_sums import line_of
from billing.store.durable_files import make_folder, new_file, sync
from billing.store.private_files import FILE_MODE, FOLDER_MODE
from billing.store.schema import usage_events
from billing.store.stored_types import UtcDateTime

FORMAT = 1
PIECE_BYTES = 2**20
LOCK = ".lock"


@dataclass(frozen=True, slots=True)
class EventsFile:
    """Events of the workspaces from one id to another, in the order of their own ids."""

    name: str
    first_workspace_id: str
    last_workspace_id: str
    events: int
    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """`stretches` are [first id, first id after it, SHA-256 of its events' lines, events], as they were proven in the
    ledger; `sums` are [workspace, month charged, events, charged, written off], in nano-USD. `sums_sha256` is of
    what the ledger keeps of the month."""

    month: str
    from_id: str
    until_id: str
    files: tuple[EventsFile, ...]
    stretches: tuple[tuple[str, str, str, int], ...]
    sums: tuple[tuple[str, str, int, int, int], ...]
    sums_sha256: str

    @property
    def events(self) -> int:
        return sum(file.events for file in self.files)

    def as_json(self) -> str:
        return json.dumps({"format": FORMAT, "unit": "nano-USD", "events": self.events, **asdict(self)})


def manifest_of(text: str) -> Manifest:
    """Raises `ArchiveDamaged`."""
    try:
        found = json.loads(text)
        return Manifest(
            found["month"],
            found["from_id"],
            found["until_id"],
            tuple(EventsFile(**one) for one in found["files"]),
            tuple(tuple(one) for one in found["stretches"]),
            tuple(tuple(one) for one in found["sums"]),
            found["sums_sha256"],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ArchiveDamaged("the manifest of an archived month cannot be read") from error


def events_name(month: str, number: int) -> str:
    return f"usage-{month}-{number:03d}.parquet"


def manifest_name(month: str) -> str:
    return f"usage-{month}.json"


def write_manifest(folder: Path, manifest: Manifest) -> None:
    with whole_file(folder / manifest_name(manifest.month)) as file:
        file.write(manifest.as_json().encode())


def require_own(folder: Path, month: str, sums: Sequence[tuple[str, str, int, int, int]]) -> None:
    """Files of the month are written over those of a run before this, and of nothing else: another ledger may have its
    archive in the folder, or this one may have had more events before a backup was put in its place. Raises
    `ArchiveRefused` and `ArchiveDamaged`."""
    path = folder / manifest_name(month)
    try:
        there = manifest_of(path.read_text())
    except FileNotFoundError:
        return
    except OSError as error:
        raise ArchiveDamaged(f"{path}: cannot be read: {error.strerror or error}") from error
    if there.sums != tuple(sums):
        raise ArchiveRefused(
            f"{path}: is of other events than the ledger has of {month}: another ledger's, or this one's before a "
            "backup was restored. Move the files of the month away, or set another billing.archive.folder"
        )


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Only one process at a time writes into the folder. Raises `ArchiveRefused` and `ArchiveDamaged`."""
    try:
        make_folder(folder, mode=FOLDER_MODE)
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, FILE_MODE)
    except OSError as error:
        raise ArchiveDamaged(f"{folder}: cannot be written: {error.strerror or error}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise ArchiveRefused(f"{folder}: another pith archive is at work there") from error
    finally:
        os.close(descriptor)


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file that takes its name once all of it is on the disk, in place of one that a run before this left. Only its
    owner may read it. Raises `ArchiveDamaged`."""
    part = path.with_name(f"{path.name}.part")
    try:
        make_folder(path.parent, mode=FOLDER_MODE)
        part.unlink(missing_ok=True)
        with new_file(part) as file:
            yield file
        os.replace(part, path)
        sync(path.parent)
    except OSError as error:
        raise ArchiveDamaged(f"{path}: cannot be written: {error.strerror or error}") from error


def digest_of(path: Path) -> tuple[str, int]:
    """SHA-256 of a file, and its bytes. Raises `ArchiveDamaged`."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while piece := file.read(PIECE_BYTES):
                digest.update(piece)
            return digest.hexdigest(), file.tell()
    except OSError as error:
        raise ArchiveDamaged(f"{path}: cannot be read: {error.strerror or error}") from error


def check_files(folder: Path, manifest: Manifest) -> None:
    """Raises `ArchiveDamaged` unless they are there as they were proven."""
    for file in manifest.files:
        if digest_of(folder / file.name) != (file.sha256, file.bytes):
            raise ArchiveDamaged(f"{folder / file.name}: is not the file that was proven")


Event = dict[str, Any]


def _kind(column_type: Any) -> str:
    if isinstance(column_type, UtcDateTime):
        return "time"
    if isinstance(column_type, Boolean):
        return "boolean"
    return "integer" if isinstance(column_type, Integer) else "text"


COLUMNS = {column.name: _kind(column.type) for column in usage_events.columns}
# Columns that came when there were files already.
_LATER = frozenset({"tokens_sha256", "budgets", "person", "tags"})
# Workspace, day, month charged, project, key, model, route.
Key = tuple[str, ...]


@dataclass(slots=True)
class Reread:
    """`days` are what `archived_days` is to have: the sums under their names, in their order. nano-USD, tokens."""

    events: int = 0
    last_settled_at: datetime | None = None
    days: dict[Key, list[int]] = field(default_factory=dict)

    def sums(self) -> dict[tuple[str, str], tuple[int, int, int]]:
        """By workspace and month charged: events, charged, written off."""
        found: dict[tuple[str, str], tuple[int, int, int]] = {}
        for key, sums in self.days.items():
            events, charged, lost = found.get((key[0], key[2]), (0, 0, 0))
            found[key[0], key[2]] = (events + sums[0], charged + sums[4], lost + sums[5])
        return found


def events_of(path: Path) -> Iterator[Event]:
    """In the file's order. Raises `ArchiveDamaged`."""
    return rows_of(path, list(COLUMNS), may_lack=_LATER)


def reread(paths: Sequence[Path], stretches: Sequence[Stretch], sums: Iterable[Sum]) -> Reread:
    """Reads the files, in the memory of their sums. Raises `ArchiveDamaged` where their events are not those of the
    stretches, or do not add up to `sums`."""
    found = Reread()
    events = merge(*map(events_of, paths), key=lambda event: event["event_id"])
    ahead = next(events, None)
    for stretch in stretches:
        ahead = _read_stretch(found, stretch, ahead, events)
    if ahead is not None:
        raise ArchiveDamaged(f"event {ahead['event_id']} is in the files, and of no stretch of their month")
    due = {
        (one.workspace_id, one.month): (one.events, one.charged_nano_usd, one.written_off_nano_usd)
        for one in sums
    }
    if found.sums() != due:
        raise ArchiveDamaged("the events of the files add up to other sums than those that were proven")
    return found


def _read_stretch(
    found: Reread, stretch: Stretch, ahead: Event | None, events: Iterator[Event]
) -> Event | None:
    """The first event after it."""
    digest, number = hashlib.sha256(), 0
    while ahead is not None and ahead["event_id"] < (stretch.until_id or ""):
        digest.update(f"{line_of(ahead)}\n".encode())
        _add(found, ahead)
        number += 1
        ahead = next(events, None)
    if (digest.hexdigest(), number) != (stretch.digest, stretch.events):
        raise ArchiveDamaged(
            f"the files' events from id {stretch.from_id or '(the first)'} to {stretch.until_id} are not those that "
            f"were proven: {number}, and {stretch.events} then"
        )
    return ahead


def _add(found: Reread, event: Event) -> None:
    """As the database's trigger adds an event up."""
    settled: datetime = event["settled_at"].astimezone(UTC)
    lost, saved, original = event["written_off_nano_usd"], event["saved_nano_usd"], event["original_tokens"]
    key = (
        event["workspace_id"],
        f"{settled:%Y-%m-%d}",
        event["month"] or f"{settled:%Y-%m}",
        event["project_id"],
        event["key_id"],
        event["model_id"],
        event["route"] or "",
    )
    amounts = (
        1,
        event["prompt_tokens"],
        event["completion_tokens"],
        event["cached_tokens"],
        event["cost_nano_usd"] - lost,
        lost,
        0 if original is None else original - event["prompt_tokens"],
        saved if lost == 0 or saved < 0 else 0,
        event["compression_nano_usd"],
    )
    sums = found.days.setdefault(key, [0] * len(amounts))
    for place, amount in enumerate(amounts):
        sums[place] += amount
    found.events += 1
    found.last_settled_at = max(settled, found.last_settled_at or settled)
