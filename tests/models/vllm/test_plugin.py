"""The plugin in vLLM's processes: they sleep while they wait, leave no shared memory, and give up slow grammars."""

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
    monkeypatch.setattr(plugin, "give_up_slow_grammars", lambda: None)
    monkeypatch.setattr(plugin, "lend_places", lambda: None)
    monkeypatch.setattr(plugin, "score_few_rows", lambda: None)
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


@pytest.mark.filterwarnings("ignore")
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


@pytest.mark.filterwarnings("ignore")
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


def test_what_follows_a_grammar_is_what_is_relied_on() -> None:
    backend = "vllm.v1.structured_output.backend_xgrammar"
    assert parameters(backend, "XgrammarGrammar.fill_bitmask") == ["bitmask", "idx"]
    assert parameters(backend, "XgrammarGrammar.accept_tokens") == ["request_id", "tokens"]
    assert "self.num_processed_tokens += 1" in text(backend, "XgrammarGrammar.accept_tokens")
    scheduler = text("vllm.v1.core.sched.scheduler", "Scheduler.update_from_output")
    rejected = scheduler.partition("not grammar.accept_tokens(")[2]
    assert "request.status = RequestStatus.FINISHED_ERROR" in rejected[:600]
    assert "self._fill_bitmasks(((grammar, cumulative_index" in text(
        "vllm.v1.structured_output", "StructuredOutputManager.grammar_bitmask"
    )


@pytest.mark.filterwarnings("ignore")
def test_a_grammar_that_takes_longer_from_token_to_token_is_given_up() -> None:
    import xgrammar
    from vllm.v1.structured_output.backend_xgrammar import XgrammarGrammar

    words = [bytes([each]) for each in range(256)] + [b"ab" * at for at in range(1, 40)]
    compiler = xgrammar.GrammarCompiler(xgrammar.TokenizerInfo(words, vocab_size=len(words)), max_threads=1)
    plugin.give_up_slow_grammars()
    plugin.give_up_slow_grammars()

    def followed_s(ebnf: str) -> float:
        """How long 400 tokens took until it was given up, or else."""
        compiled = compiler.compile_grammar(ebnf)
        grammar = XgrammarGrammar(len(words), xgrammar.GrammarMatcher(compiled), compiled)
        mask = xgrammar.allocate_token_bitmask(1, len(words))
        for _ in range(400):
            grammar.fill_bitmask(mask, 0)
            if not grammar.accept_tokens("r", [256 + 5]):
                break
        else:
            assert grammar.num_processed_tokens == 400
        return float(grammar.followed_s)

    assert followed_s("root ::= [a-z]*") < plugin.FOLLOW_S
    ambiguous = followed_s('root ::= s\\ns ::= [a-z] s [a-z] | s s | ""'.replace("\\n", "\n"))
    # A little more than it may: no step before the last was much longer than all others together.
    assert plugin.FOLLOW_S < ambiguous < 10 * plugin.FOLLOW_S
