"""A collection of whole cents, its states, and the operator's command that hands it to a payment system."""

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from tempfile import TemporaryFile
from typing import IO, Literal, get_args

from billing.errors import HookFailed, IllegalMove, InvalidCollection

State = Literal["open", "paid", "failed", "void"]
STATES: tuple[State, ...] = get_args(State)

NANO_PER_CENT = 10_000_000
MAX_REFERENCE_CHARS = 256
MAX_NOTE_CHARS = 1024

# Money that arrived, or was given up, stays so. What failed may be tried again, or be paid in another way.
_MOVES: dict[State, tuple[State, ...]] = {
    "open": ("paid", "failed", "void"),
    "failed": ("open", "paid", "void"),
    "paid": (),
    "void": (),
}
FINAL: tuple[State, ...] = tuple(state for state in STATES if not _MOVES[state])


@dataclass(frozen=True, slots=True)
class Collection:
    """One row. `reference` is the payment system's; `times_opened` rises when one that failed is opened again."""

    id: str
    workspace_id: str
    workspace_name: str
    idempotency_key: str
    cents: int
    nano_usd: int
    state: State
    reference: str | None
    note: str | None
    times_opened: int
    handed_over_at: datetime | None
    created_at: datetime
    updated_at: datetime
    closed_at: datetime | None


def whole_cents(uncollected_nano_usd: int, *, threshold_cents: int) -> int:
    """The cents that a collection of this balance asks for: 0 below the threshold. The remainder carries over."""
    if threshold_cents < 1:
        raise ValueError(f"threshold_cents: must be at least 1, not {threshold_cents}")
    cents = uncollected_nano_usd // NANO_PER_CENT
    return cents if cents >= threshold_cents else 0


def check_move(collection_id: str, state: State, wanted: State) -> None:
    """Raises `IllegalMove`, which names both states."""
    if wanted not in _MOVES[state]:
        raise IllegalMove(collection_id, state=state, wanted=wanted, allowed=_MOVES[state])


def checked_text(field: str, text: str | None, most: int) -> str | None:
    """Raises `InvalidCollection` for text that is empty, too long or not printable."""
    if text is not None and not (1 <= len(text) <= most and text.isprintable()):
        raise InvalidCollection(f"{field}: must be 1 to {most} printable characters, not {text[:80]!r}")
    return text


MAX_OUTPUT_BYTES = 16_384
MAX_NOTED_CHARS = 500
POLL_S = 0.02
KILL_S = 5.0
_Process = subprocess.Popen[bytes]
_ANSWERS: dict[object, Literal["open", "paid", "failed"]] = {
    "open": "open",
    "paid": "paid",
    "failed": "failed",
}


@dataclass(frozen=True, slots=True)
class HookCommand:
    """An argument list, whose first is the program, and the seconds that it may take."""

    argv: Sequence[str]
    timeout_s: float


@dataclass(frozen=True, slots=True)
class HookAnswer:
    """`open`: the payment system has it and says later. `output` is what is noted of what it printed."""

    state: Literal["open", "paid", "failed"]
    reference: str | None
    output: str


def request_of(collection: Collection) -> bytes:
    """The command's standard input: one JSON object."""
    fields = {
        "idempotency_key": collection.idempotency_key,
        "collection_id": collection.id,
        "workspace_id": collection.workspace_id,
        "workspace_name": collection.workspace_name,
        "cents": collection.cents,
        "currency": "usd",
        "times_opened": collection.times_opened,
        "created_at": collection.created_at.isoformat(),
    }
    return json.dumps(fields).encode() + b"\n"


async def run_hook(command: HookCommand, request: bytes) -> HookAnswer:
    """Raises `HookFailed`. A command that is still running at the end, or at a cancellation, is killed."""
    with TemporaryFile() as given, TemporaryFile() as printed, TemporaryFile() as complained:
        given.write(request)
        given.seek(0)
        process = _start(command.argv, given, printed, complained)
        try:
            code = await asyncio.to_thread(_finish, process, command.timeout_s)
        except asyncio.CancelledError:
            # The thread goes on until it has seen the end.
            _kill(process)
            raise
        if code is None:
            raise HookFailed(f"it ran longer than {command.timeout_s:g} s", timed_out=True)
        if code != 0:
            ended = f"exit code {code}" if code > 0 else f"signal {-code}"
            raise HookFailed(f"{ended}: {_tail(complained) or 'it wrote nothing to stderr'}")
        return read_answer(_head(printed))


def read_answer(printed: bytes) -> HookAnswer:
    """The answer of a command that ended well. Nothing means that it will say later.

    Raises `HookFailed` for anything else: money may have moved without a record of it.
    """
    text = printed.decode("utf-8", "replace").strip()
    if not text:
        return HookAnswer("open", None, "")
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _not_understood("it is not one JSON object", text) from error
    if not isinstance(fields, dict) or not fields.keys() & {"state", "reference"}:
        raise _not_understood("it is not a JSON object with state or reference", text)
    state, reference = fields.get("state", "open"), fields.get("reference")
    if not isinstance(state, str) or state not in _ANSWERS:
        raise _not_understood(f"state must be one of {', '.join(map(str, _ANSWERS))}", text)
    if reference is not None and not _is_reference(reference):
        raise _not_understood(f"reference must be 1 to {MAX_REFERENCE_CHARS} printable characters", text)
    return HookAnswer(_ANSWERS[state], reference, text[:MAX_NOTED_CHARS])


def _is_reference(value: object) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= MAX_REFERENCE_CHARS and value.isprintable()


def _not_understood(why: str, text: str) -> HookFailed:
    shown = " ".join(text.split())[:MAX_NOTED_CHARS]
    return HookFailed(f"its answer was not understood: {why}: {shown}")


def _start(argv: Sequence[str], given: IO[bytes], printed: IO[bytes], complained: IO[bytes]) -> _Process:
    try:
        # A session of its own, so that what it starts is killed with it.
        return subprocess.Popen(
            list(argv), stdin=given, stdout=printed, stderr=complained, start_new_session=True
        )
    except (OSError, ValueError) as error:
        raise HookFailed(f"{argv[0]!r} cannot be run: {getattr(error, 'strerror', None) or error}") from error


def _finish(process: _Process, timeout_s: float) -> int | None:
    """The exit code, negative for a signal, or None for a command that had to be killed."""
    code = _wait(process, timeout_s)
    if code is None:
        _kill(process)
        _wait(process, KILL_S)
    return code


def _wait(process: _Process, timeout_s: float) -> int | None:
    """The exit code, or None where it is still running after `timeout_s`.

    Not `Popen.wait`: that calls an exit code that was lost (where SIGCHLD is ignored) 0, which here means success.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            pid, status = os.waitpid(process.pid, os.WNOHANG)
        except ChildProcessError as error:
            process.returncode = -1
            raise HookFailed("its exit code was lost") from error
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return process.returncode
        if time.monotonic() >= deadline:
            return None
        time.sleep(POLL_S)


def _kill(process: _Process) -> None:
    """Kills it with everything that it started."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _head(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read(MAX_OUTPUT_BYTES)


def _tail(file: IO[bytes]) -> str:
    end = file.seek(0, os.SEEK_END)
    file.seek(max(0, end - MAX_OUTPUT_BYTES))
    text = " ".join(file.read(MAX_OUTPUT_BYTES).decode("utf-8", "replace").split())
    return text[-MAX_NOTED_CHARS:]
