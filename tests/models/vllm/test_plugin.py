"""The plugin that lets vLLM's core and workers sleep while they wait for each other, and leave no shared memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from models.engine_kinds import SPIN_VARIABLE
from models.vllm import plugin
from tests.vendor_source import parameters, text

QUEUE = "vllm.distributed.device_communicators.shm_broadcast"
READY = "wait_until_ready"
MESSAGES = 300
# Below the time after which vLLM's reader looks by itself for what it was not told of.
LOST_S = 4


def test_vllm_finds_it_in_every_process() -> None:
    found = [each.value for each in entry_points(group="vllm.general_plugins") if each.name == "pith"]
    assert found == ["models.vllm.plugin:register"]


def test_without_the_variable_they_wait_as_vllm_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SPIN_VARIABLE, raising=False)
    monkeypatch.setattr(plugin, "unlink_open_queues", lambda: None)
    monkeypatch.setattr(plugin, "spin_at_most", lambda spin_s: pytest.fail(f"spins for {spin_s}"))
    plugin.register()


def test_a_waiting_reader_is_what_is_relied_on() -> None:
    assert parameters(QUEUE, "SpinCondition.wait") == ["timeout_ms"]
    wait = text(QUEUE, "SpinCondition.wait")
    assert "if current_time <= self.last_read + self.busy_loop_s:\n        sched_yield()" in wait
    assert "self.poller.poll(timeout=timeout_ms)" in wait
    assert "self.local_notify_socket.send(b'\\x00')" in text(QUEUE, "SpinCondition.notify")
    assert "self._spin_condition.wait(timeout_ms=" in text(QUEUE, "MessageQueue.acquire_read")
    assert "self._spin_condition.notify()" in text(QUEUE, "MessageQueue.enqueue")


def test_a_queue_in_shared_memory_is_what_is_relied_on() -> None:
    assert "self.shared_memory.close()" in text(QUEUE, "ShmRingBuffer.__del__")
    assert "if self.is_creator:\n            self.shared_memory.unlink()" in text(
        QUEUE, "ShmRingBuffer.__del__"
    )
    # The reader has it open before it says so to the writer, who waits for all of them.
    assert "self.buffer = ShmRingBuffer(*handle.buffer_handle)" in text(
        QUEUE, "MessageQueue.create_from_handle"
    )
    assert "for i in range(self.n_local_reader):\n            self.local_socket.recv()" in text(
        QUEUE, "MessageQueue.wait_until_ready"
    )


@pytest.fixture
def queues(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Callable[[], None]]:
    """vLLM's module, which is put back as it was, and what closes its sockets while the queues are still there."""
    from vllm.distributed.device_communicators import shm_broadcast

    contexts: list[Any] = []

    def context() -> Any:
        # vLLM leaves them to the end of its process.
        contexts.append(shm_broadcast.zmq.Context())
        return contexts[-1]

    monkeypatch.setattr(shm_broadcast, "Context", context)
    changed = ((shm_broadcast.SpinCondition, ("wait", "notify")), (shm_broadcast.MessageQueue, (READY,)))
    for cls, names in changed:
        for name in names:
            monkeypatch.setattr(cls, name, getattr(cls, name))

    def close() -> None:
        for each in contexts:
            each.destroy(linger=0)

    return shm_broadcast, close


@pytest.mark.integration
def test_a_queue_that_both_sides_have_open_has_no_name_that_could_outlive_them(
    queues: tuple[Any, Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    shm_broadcast, close = queues
    monkeypatch.delenv(SPIN_VARIABLE, raising=False)
    plugin.register()
    queue = shm_broadcast.MessageQueue(1, 1)
    path = Path("/dev/shm", queue.buffer.shared_memory.name)
    reader = shm_broadcast.MessageQueue.create_from_handle(queue.export_handle(), 0)
    assert path.exists()
    ready = threading.Thread(target=reader.wait_until_ready)
    ready.start()
    queue.wait_until_ready()
    ready.join(LOST_S)
    assert not path.exists()
    queue.enqueue("still there")
    assert reader.dequeue(timeout=LOST_S) == "still there"
    close()


@pytest.mark.integration
def test_no_message_is_lost_on_a_reader_that_sleeps(
    queues: tuple[Any, Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One by one and in pairs, as a core and its worker have them; the second of a pair comes at once."""
    shm_broadcast, close = queues
    spins: list[int] = []
    monkeypatch.setattr(shm_broadcast, "sched_yield", lambda: spins.append(1))
    monkeypatch.setenv(SPIN_VARIABLE, "0")
    plugin.register()
    asked, answered = (shm_broadcast.MessageQueue(1, 1) for _ in range(2))
    of_worker = shm_broadcast.MessageQueue.create_from_handle(asked.export_handle(), 0)
    of_core = shm_broadcast.MessageQueue.create_from_handle(answered.export_handle(), 0)

    def work() -> None:
        of_worker.wait_until_ready()
        answered.wait_until_ready()
        for _ in range(MESSAGES):
            answered.enqueue(of_worker.dequeue(timeout=LOST_S))

    worker = threading.Thread(target=work)
    worker.start()
    asked.wait_until_ready()
    of_core.wait_until_ready()
    for number in range(0, MESSAGES, 2):
        asked.enqueue(number)
        asked.enqueue(number + 1)
        assert [of_core.dequeue(timeout=LOST_S) for _ in range(2)] == [number, number + 1]
    worker.join(LOST_S)
    assert not worker.is_alive()
    close()
    assert not spins, "neither side had to wait for room, and a reader sleeps"
