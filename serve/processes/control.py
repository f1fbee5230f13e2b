"""The control socket of a running server: who may enter its run folder may ask it to take its configuration again.

A request is a line of JSON, and so is each line of the answer; the last has `exit`. The server goes on with what it was
asked when the one who asked has left.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import pwd
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from serve.processes.run_folder import CONTROL_SOCKET

LONGEST_REQUEST_BYTES = 64 * 1024
READ_S = 5.0
# Far more than anybody needs who waits for a reload.
MOST_AT_ONCE = 8
# Of `accept`: what goes away by itself.
PASSING = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED)
RETRY_S = 0.5
Tell = Callable[[Mapping[str, Any]], None]
# Answers a request of an actor, as the audit log knows people, and tells what goes on.
Answer = Callable[[Mapping[str, Any], str, Tell], None]
logger = logging.getLogger("pith.control")


class NoServer(Exception):
    """No server listens there."""


@contextmanager
def control_socket(folder: Path, answer: Answer) -> Iterator[None]:
    """Answer in threads until the block ends. Raises `OSError` where it cannot listen."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with listening:
        listening.bind(str(folder / CONTROL_SOCKET))
        listening.listen(MOST_AT_ONCE)
        thread = threading.Thread(target=_accept, args=[listening, answer], name="control", daemon=True)
        thread.start()
        try:
            yield
        finally:
            (folder / CONTROL_SOCKET).unlink(missing_ok=True)
            # Wakes the one that accepts.
            with suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)
            thread.join(READ_S)


def _accept(listening: socket.socket, answer: Answer) -> None:
    places, tick = threading.BoundedSemaphore(MOST_AT_ONCE), threading.Event()
    while True:
        try:
            asking, _ = listening.accept()
        except OSError as error:
            if error.errno not in PASSING:
                # It was shut.
                return
            logger.warning("the control socket takes no request for now: %s", error.strerror)
            tick.wait(RETRY_S)
            continue
        if not places.acquire(blocking=False):
            asking.close()
            continue
        threading.Thread(target=_serve, args=[asking, answer, places], daemon=True).start()


def _serve(asking: socket.socket, answer: Answer, places: threading.BoundedSemaphore) -> None:
    try:
        with asking:
            asking.settimeout(READ_S)
            line = _line(asking)
            if not line:
                # Somebody looked whether this server runs.
                return
            request = json.loads(line)
            if not isinstance(request, dict):
                raise ValueError("a request is a JSON object")
            answer(request, actor_of(_uid(asking)), _telling(asking))
    except (OSError, ValueError) as error:
        logger.warning("a request on the control socket is not answered: %s", error)
    finally:
        places.release()


def _telling(asking: socket.socket) -> Tell:
    listens = True

    def tell(message: Mapping[str, Any]) -> None:
        nonlocal listens
        if not listens:
            return
        try:
            asking.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            # Who has left, or does not read, misses the rest: nothing waits for them twice.
            listens = False

    return tell


def _line(asking: socket.socket) -> bytes:
    with asking.makefile("rb") as lines:
        line = lines.readline(LONGEST_REQUEST_BYTES + 1)
    if line and not line.endswith(b"\n"):
        raise ValueError("a request is one line")
    return line


def _uid(asking: socket.socket) -> int:
    """Whose process is at the other end; the kernel says so."""
    credentials = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", credentials)
    return int(uid)


def actor_of(uid: int) -> str:
    """A user of this machine, for the audit log."""
    try:
        return f"cli:{pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"cli:{uid}"


def ask(folder: Path, request: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Ask the server whose run folder is `folder`, and yield its answer line by line. Raises `NoServer`."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        try:
            asking.connect(str(folder / CONTROL_SOCKET))
            asking.sendall(json.dumps(request).encode() + b"\n")
            with asking.makefile("rb") as lines:
                for line in lines:
                    yield json.loads(line)
        except OSError as error:
            raise NoServer(f"no server answers in {folder}: {error.strerror or error}") from error


def folders_of_servers(state_dir: Path) -> dict[int, Path]:
    """By port: the run folders of the servers that run with this state folder."""
    found = {}
    for lock in (state_dir / "run").glob("*.lock"):
        noted = lock.read_text(encoding="utf-8").strip() if os.access(lock, os.R_OK) else ""
        if lock.stem.isdigit() and noted and _answers(Path(noted)):
            found[int(lock.stem)] = Path(noted)
    return found


def _answers(folder: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(folder / CONTROL_SOCKET))
        except OSError:
            return False
        return True
