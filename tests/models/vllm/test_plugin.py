"""The plugin that lets vLLM's core and workers sleep while they wait for each other."""

from __future__ import annotations

import threading
from importlib.metadata import entry_points
from typing import Any

import pytest

from models.engine_kinds import SPIN_VARIABLE
from models.vllm import plugin
from tests.vendor_source import parameters, text

QUEUE = "vllm.distributed.device_communicators.shm_broadcast"
MESSAGES = 300
# Below the time after which vLLM's reader looks by itself for what it was not told of.
LOST_S = 4


def test_vllm_finds_it_in_every_process() -> None:
    found = [each.value for each in entry_points(group="vllm.general_plugins") if each.name == "pith"]
    assert found == ["models.vllm.plugin:register"]


def test_without_the_variable_nothing_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SPIN_VARIABLE, raising=False)
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


@pytest.mark.integration
def test_no_message_is_lost_on_a_reader_that_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """One by one and in pairs, as a core and its worker have them; the second of a pair comes at once."""
    from vllm.distributed.device_communicators import shm_broadcast

    contexts: list[Any] = []

    def context() -> Any:
        # vLLM leaves them to the end of its process.
        contexts.append(shm_broadcast.zmq.Context())
        return contexts[-1]

    monkeypatch.setattr(shm_broadcast, "Context", context)
    cls, spins = shm_broadcast.SpinCondition, []
    monkeypatch.setattr(shm_broadcast, "sched_yield", lambda: spins.append(1))
    for name in ("wait", "notify"):
        monkeypatch.setattr(cls, name, getattr(cls, name))
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
    for each in contexts:
        each.destroy(linger=0)
    assert not spins, "neither side had to wait for room, and a reader sleeps"
