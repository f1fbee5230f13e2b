"""The control socket: who asks is answered, whoever else is there and however they behave."""

from __future__ import annotations

import errno
import os
import socket
import stat
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from serve.processes import control
from serve.processes.control import NoServer, Tell, ask, control_socket, folders_of_servers
from serve.processes.run_folder import CONTROL_SOCKET, run_folder

LONG = "x" * 2**20


def answer(request: Mapping[str, Any], actor: str, tell: Tell) -> None:
    tell({"say": f"{actor} asks for {request['what']}"})
    for _ in range(request.get("lines", 0)):
        tell({"say": LONG})
    tell({"exit": 0})


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with run_folder(tmp_path, 8000) as found, control_socket(found, answer):
        yield found


def test_the_kernel_says_who_asks(folder: Path) -> None:
    said, ended = ask(folder, {"what": "peace", "actor": "root"})
    assert said == {"say": f"{control.actor_of(os.getuid())} asks for peace"} and ended == {"exit": 0}


def test_only_the_owner_of_the_folder_reaches_it(folder: Path) -> None:
    assert stat.S_IMODE((folder / CONTROL_SOCKET).parent.stat().st_mode) == 0o700


def test_one_that_does_not_read_is_not_waited_for_twice(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "READ_S", 2.0)
    done = threading.Event()

    def slow(request: Mapping[str, Any], actor: str, tell: Tell) -> None:
        answer(request, actor, tell)
        done.set()

    other = folder / "other"
    other.mkdir()
    with control_socket(other, slow), socket.socket(socket.AF_UNIX) as deaf:
        deaf.connect(str(other / CONTROL_SOCKET))
        deaf.sendall(b'{"what": "much", "lines": 500}\n')
        assert done.wait(20)


@pytest.mark.parametrize("sent", [b"no json\n", b"[1]\n", b"x" * 100_000, b'{"what": '])
def test_what_is_no_request_is_not_answered_and_the_next_one_is(folder: Path, sent: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as rude:
        rude.connect(str(folder / CONTROL_SOCKET))
        with suppress(ConnectionResetError, BrokenPipeError):
            rude.sendall(sent)
            rude.shutdown(socket.SHUT_WR)
            assert rude.recv(100) == b""
    assert list(ask(folder, {"what": "peace"}))[-1] == {"exit": 0}


def test_a_process_without_a_free_file_answers_once_it_has_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    accept, failed = socket.socket.accept, threading.Event()

    def once_without(listening: socket.socket) -> Any:
        if not failed.is_set():
            failed.set()
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(listening)

    monkeypatch.setattr(socket.socket, "accept", once_without)
    monkeypatch.setattr(control, "RETRY_S", 0.01)
    with run_folder(tmp_path, 8000) as folder, control_socket(folder, answer):
        assert list(ask(folder, {"what": "peace"}))[-1] == {"exit": 0}
        assert failed.is_set()


def test_servers_are_found_by_their_ports_while_they_run(tmp_path: Path) -> None:
    # The other one is starting.
    with run_folder(tmp_path, 8000) as one, control_socket(one, answer), run_folder(tmp_path, 8001):
        assert folders_of_servers(tmp_path) == {8000: one}
    assert folders_of_servers(tmp_path) == {}
    with pytest.raises(NoServer):
        list(ask(one, {}))
