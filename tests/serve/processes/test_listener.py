"""One listening socket for several processes, and the connection that is shed for the next one."""

from __future__ import annotations

import asyncio
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import PlainTextResponse

from serve.config.settings import Settings
from serve.http.server.server import PithServer, http_config
from serve.processes.connections import MAX_WAITING_REFUSALS, UNREAD_S, Connections, Place, Rest
from serve.processes.coordinator import Coordinator, open_coordinator
from serve.processes.listener import AHEAD, Listener, NoListener, ask_for_listener
from serve.processes.run_folder import FolderInUse, run_folder
from tests.serve.served import eventually, settings_document

CLIENTS = 16
KILLED = """
import os, sys
from pathlib import Path
from serve.processes.run_folder import run_folder
with run_folder(Path(sys.argv[1]), 8000) as made:
    (made / "left").touch()
    os._exit(0)
"""
HELLO = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def folder() -> Iterator[Path]:
    # A socket's path must be short, and pytest's folders are not.
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.fixture
def coordinator(folder: Path) -> Iterator[Coordinator]:
    with open_coordinator("127.0.0.1", 0, folder) as coordinator:
        yield coordinator


@asynccontextmanager
async def serving(listener: Listener, tmp_path: Path) -> AsyncIterator[PithServer]:
    settings = Settings.model_validate(settings_document(tmp_path))
    server = PithServer(http_config(PlainTextResponse("hello"), settings), listener)
    task = asyncio.create_task(server.serve())
    try:
        await eventually(lambda: server.started)
        yield server
    finally:
        server.should_exit = True
        await task


async def hello(client: socket.socket) -> bytes:
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(client, HELLO)
    return await loop.sock_recv(client, 4096)


def client_of(port: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port))
    client.setblocking(False)
    return client


@pytest.mark.parametrize("one_by_one", [False, True])
def test_kept_connections_spread_over_the_processes(
    coordinator: Coordinator, folder: Path, tmp_path: Path, one_by_one: bool
) -> None:
    async def spread() -> list[int]:
        listeners = [await asyncio.to_thread(ask_for_listener, folder) for _ in range(2)]
        async with serving(listeners[0], tmp_path) as first, serving(listeners[1], tmp_path) as second:
            clients = []
            for _ in range(CLIENTS):
                clients.append(client_of(coordinator.port))
                if one_by_one:
                    assert b"200 OK" in await hello(clients[-1])
            for client in clients:
                assert b"200 OK" in await hello(client)
            found = [len(server.server_state.connections) for server in (first, second)]
            for client in clients:
                client.close()
        return found

    counts = uvloop.run(spread())
    assert sum(counts) == CLIENTS
    assert abs(counts[0] - counts[1]) <= AHEAD + 1


def test_a_process_that_is_ahead_takes_what_the_other_leaves(
    coordinator: Coordinator, folder: Path, tmp_path: Path
) -> None:
    async def answers() -> list[bytes]:
        # It has a slot, and never comes to take a connection.
        idle = await asyncio.to_thread(ask_for_listener, folder)
        busy = await asyncio.to_thread(ask_for_listener, folder)
        async with serving(busy, tmp_path):
            clients = [client_of(coordinator.port) for _ in range(3 * CLIENTS)]
            found = [await hello(client) for client in clients]
            for client in clients:
                client.close()
        idle.close()
        return found

    assert all(b"200 OK" in answer for answer in uvloop.run(answers()))


def test_what_waits_in_the_queue_outlives_every_process(
    coordinator: Coordinator, folder: Path, tmp_path: Path
) -> None:
    async def answer() -> bytes:
        ended = await asyncio.to_thread(ask_for_listener, folder)
        client = client_of(coordinator.port)
        ended.close()
        late = client_of(coordinator.port)
        async with serving(await asyncio.to_thread(ask_for_listener, folder), tmp_path):
            found = await hello(client) + await hello(late)
        client.close()
        late.close()
        return found

    assert uvloop.run(answer()).count(b"200 OK") == 2


def test_a_client_is_refused_and_not_left_to_wait_until_a_process_is_there(coordinator: Coordinator) -> None:
    with pytest.raises(ConnectionRefusedError):
        client_of(coordinator.port)


def test_a_process_that_has_ended_frees_its_slot(coordinator: Coordinator, folder: Path) -> None:
    listeners = [ask_for_listener(folder) for _ in range(3)]
    slots = [listener.slot for listener in listeners]
    assert sorted(slot for slot in slots if slot is not None) == [0, 1, 2]
    assert listeners[1].lifeline is not None
    # As the system does for a process that was killed.
    listeners[1].lifeline.close()
    assert asyncio.run(_slot_again(folder, 1))
    for listener in listeners:
        listener.close()


async def _slot_again(folder: Path, slot: int) -> bool:
    """Whether it is given out within the deadline."""
    async with asyncio.timeout(60):
        while True:
            listener = await asyncio.to_thread(ask_for_listener, folder)
            listener.close()
            if listener.slot == slot:
                return True


def test_without_a_desk_there_is_no_door_and_it_says_where(folder: Path) -> None:
    with pytest.raises(NoListener, match=str(folder)):
        ask_for_listener(folder)


def test_a_coordinator_that_has_stopped_listening_gives_no_socket(
    coordinator: Coordinator, folder: Path
) -> None:
    coordinator.stop_listening()
    with pytest.raises(NoListener, match="no listening socket"):
        ask_for_listener(folder)


def test_a_port_that_is_taken_is_said(coordinator: Coordinator, folder: Path) -> None:
    ask_for_listener(folder).close()
    with (
        tempfile.TemporaryDirectory() as other,
        pytest.raises(OSError, match="in use"),
        open_coordinator("127.0.0.1", coordinator.port, Path(other)),
    ):
        pass


def test_the_folder_of_a_run_is_for_its_owner_alone_and_goes_with_it(folder: Path) -> None:
    with run_folder(folder, 8000) as made:
        assert made == folder / "run/8000"
        assert stat.S_IMODE(made.stat().st_mode) == 0o700
        with pytest.raises(FolderInUse, match="8000"), run_folder(folder, 8000):
            pass
        with run_folder(folder, 8001) as other:
            assert other != made
    assert not made.exists()


def test_a_folder_whose_sockets_would_have_too_long_a_path_is_made_elsewhere(folder: Path) -> None:
    deep = folder / ("deep" * 20)
    with run_folder(deep, 8000) as made:
        assert made.parent == Path("/tmp")
        assert stat.S_IMODE(made.stat().st_mode) == 0o700
        (made / "left").touch()
        noted = (deep / "run/8000.lock").read_text()
        assert noted == str(made)
    assert not made.exists()


@pytest.mark.parametrize("depth", [1, 20])
def test_what_a_killed_server_left_is_removed_by_the_next(folder: Path, depth: int) -> None:
    state_dir = folder / ("deep" * depth)
    subprocess.run([sys.executable, "-c", KILLED, str(state_dir)], check=True)
    left = Path((state_dir / "run/8000.lock").read_text())
    assert (left / "left").exists()
    with run_folder(state_dir, 8000) as made:
        assert not list(made.iterdir())
        assert made == left or not left.exists()


def test_the_logs_of_a_run_are_kept_until_the_next_one_has_ended(folder: Path) -> None:
    for text in ("first", "second"):
        with run_folder(folder, 8000) as made:
            session = made / "ray/session_1"
            (session / "logs").mkdir(parents=True)
            (made / "ray/session_latest").symlink_to(session)
            (session / "logs/serve.log").write_text(text)
        assert (folder / "logs/8000/serve.log").read_text() == text


def test_a_note_of_a_folder_that_is_not_ours_is_not_believed(folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="other-") as name:
        (folder / "run").mkdir()
        (folder / "run/8000.lock").write_text(name)
        with run_folder(folder, 8000):
            assert Path(name).is_dir()


class Port:
    """Connections that note which of them was shed."""

    def __init__(self, most: int, most_per_client: int = 100) -> None:
        self.connections = Connections(most=most, most_per_client=most_per_client)
        self.shed: list[tuple[str, Rest]] = []

    def open(self, name: str, client: str | None = None) -> Place:
        return self.connections.open(client, lambda rest: self.shed.append((name, rest)))

    def busy(self, name: str, client: str | None = None) -> Place:
        place = self.open(name, client)
        self.connections.works(place)
        return place


def test_the_one_that_was_silent_for_the_longest_goes_first() -> None:
    port = Port(3)
    for name in ("first", "second", "third", "fourth", "fifth"):
        assert port.open(name).refused is None
    assert port.shed == [("first", Rest.NEW), ("second", Rest.NEW)]


def test_the_idle_ones_go_after_the_silent_and_those_at_work_never() -> None:
    port = Port(3)
    idle, silent = port.open("idle"), port.open("silent")
    port.connections.rests(idle, Rest.IDLE)
    port.busy("busy")
    assert not silent.refused
    for name in ("second", "third"):
        port.busy(name)
    assert port.shed == [("silent", Rest.NEW), ("idle", Rest.IDLE)]
    assert port.open("fourth").refused == Connections.ALL
    assert len(port.shed) == 2


def test_a_reply_that_is_not_read_counts_as_rest_only_after_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("serve.processes.connections.monotonic", lambda: now)
    port = Port(1)
    port.connections.rests(port.open("unread"), Rest.UNREAD)
    refused = port.open("next")
    assert refused.refused == Connections.ALL
    port.connections.close(refused)
    now += UNREAD_S
    assert port.open("next").refused is None
    assert port.shed == [("unread", Rest.UNREAD)]


def test_a_client_over_its_bound_loses_one_of_its_own() -> None:
    port = Port(10, 2)
    port.open("other", "b")
    for name in ("first", "second", "third"):
        assert port.open(name, "a").refused is None
    assert port.shed == [("first", Rest.NEW)]
    full = Port(10, 1)
    full.busy("busy", "a")
    assert full.open("next", "a").refused == Connections.CLIENT
    assert full.open("next", "b").refused is None


def test_what_is_refused_waits_for_its_refusal_only_in_small_numbers() -> None:
    port = Port(0)
    places = [port.open("refused") for _ in range(MAX_WAITING_REFUSALS)]
    assert port.connections.may_be_told
    places.append(port.open("one more"))
    assert not port.connections.may_be_told
    for place in places:
        port.connections.close(place)
    assert port.connections.may_be_told


@given(
    st.lists(
        st.tuples(st.sampled_from(["open", "works", "idle", "unread", "close"]), st.integers(0, 9)),
        max_size=80,
    )
)
def test_whatever_happens_no_bound_is_passed_and_nothing_is_left_at_the_end(
    steps: list[tuple[str, int]],
) -> None:
    connections, places = Connections(most=4, most_per_client=2), list[Place]()
    for step, number in steps:
        if step == "open":
            places.append(connections.open(f"client {number % 3}", lambda rest: None))
        elif places:
            place = places[number % len(places)]
            if step == "works":
                connections.works(place)
            elif step == "close":
                connections.close(place)
            else:
                connections.rests(place, Rest.IDLE if step == "idle" else Rest.UNREAD)
        taken = [place for place in places if place.is_taken]
        assert len(taken) <= 4
        assert all(
            sum(place.client == client for place in taken) <= 2 for client in {p.client for p in taken}
        )
    for place in places:
        connections.close(place)
        connections.close(place)
    assert connections._all.taken == 0 and not connections._of
    assert not any(connections._all.resting)


GIVEN = """
import os, sys
from serve.processes.listener import given_socket
os.dup2(int(sys.argv[1]), 3)
environment = {"LISTEN_FDS": sys.argv[3], "LISTEN_PID": sys.argv[4] or str(os.getpid()), "OTHER": ""}
try:
    sock = given_socket(environment, sys.argv[5], int(sys.argv[2]))
    print(sock and sock.getsockname()[1], os.get_inheritable(3), list(environment))
except OSError as error:
    print(error)
"""


OTHER = "the socket that was given (LISTEN_FDS) is ('{address}', {port}), and not one that listens on {host}, port"


@pytest.mark.parametrize(
    ("number", "pid", "host", "address", "off_by", "listens", "said"),
    [
        ("1", "", "127.0.0.1", "127.0.0.1", 0, True, "{port} False ['OTHER']"),
        ("1", "", "localhost", "127.0.0.1", 0, True, "{port} False ['OTHER']"),
        ("1", "1", "127.0.0.1", "127.0.0.1", 0, True, "None True ['OTHER']"),
        ("2", "", "127.0.0.1", "127.0.0.1", 0, True, "2 sockets were given (LISTEN_FDS), and it takes one"),
        ("1", "", "127.0.0.1", "127.0.0.1", 1, True, OTHER),
        ("1", "", "127.0.0.1", "127.0.0.1", 0, False, OTHER),
        ("1", "", "127.0.0.1", "0.0.0.0", 0, True, OTHER),
        ("1", "", "0.0.0.0", "127.0.0.1", 0, True, OTHER),
    ],
)
def test_a_socket_that_a_service_manager_gives_is_taken_where_it_is_the_right_one(
    number: str, pid: str, host: str, address: str, off_by: int, listens: bool, said: str
) -> None:
    with socket.socket() as sock:
        sock.bind((address, 0))
        if listens:
            sock.listen()
        port = sock.getsockname()[1]
        words = [str(sock.fileno()), str(port + off_by), number, pid, host]
        done = subprocess.run(
            [sys.executable, "-c", GIVEN, *words], pass_fds=[sock.fileno()], capture_output=True, text=True, check=True
        )  # fmt: skip
    assert done.stdout.startswith(said.format(address=address, port=port, host=host)), done.stdout
