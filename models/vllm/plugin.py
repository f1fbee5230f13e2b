"""Changes to vLLM in each of its processes, engine cores and workers included: vLLM calls `register` there.

The entry point `vllm.general_plugins` of pyproject.toml names it. How they wait is not changed without
`SPIN_VARIABLE`, which `engine.spin_s` of a model sets in its processes alone.
"""

import os
import time
from typing import Any

from models.engine_kinds import SPIN_VARIABLE
from models.vllm.lending import lend_places
from models.vllm.scored_rows import score_few_rows

# While there is work, a reader looks by itself this often: a notification may be lost where a subscription is new.
LOOK_AGAIN_MS = 5
ACTIVE_S = 1.0
# What following a grammar may take of the core's thread, in which all requests wait for it: at once, and a token.
FOLLOW_S, FOLLOW_TOKEN_S = 0.5, 0.002


def register() -> None:
    """Raises `ValueError` where the variable is no number."""
    unlink_open_queues()
    give_up_slow_grammars()
    lend_places()
    score_few_rows()
    if (spin_s := os.environ.get(SPIN_VARIABLE)) is not None:
        spin_at_most(float(spin_s))


def unlink_open_queues() -> None:
    """Let a queue in shared memory lose its name once all who use it have it open (`MessageQueue.wait_until_ready` of
    `vllm.distributed.device_communicators.shm_broadcast`): what has no name goes with its last process. Ray kills a
    worker with the process that would remove it, so each engine that stopped left 160 MB or more for each of its
    queues in `/dev/shm`, until nothing fitted there any more."""
    from vllm.distributed.device_communicators.shm_broadcast import MessageQueue

    wait = MessageQueue.wait_until_ready

    def wait_and_unlink(self: Any) -> None:
        wait(self)
        if self.buffer is not None and self.buffer.is_creator:
            self.buffer.is_creator = False
            self.buffer.shared_memory.unlink()

    MessageQueue.wait_until_ready = wait_and_unlink


def spin_at_most(spin_s: float) -> None:
    """Let a core and its workers spin for `spin_s` seconds when they wait for each other, then sleep until they are
    woken (`vllm.distributed.device_communicators.shm_broadcast.SpinCondition`, which spins for a second). Without
    it what spins takes a third more CPU a request from a machine with few cores, and latency varies more."""
    from vllm.distributed.device_communicators.shm_broadcast import SpinCondition, zmq

    wait, notify = SpinCondition.wait, SpinCondition.notify

    def wait_asleep(self: Any, timeout_ms: int | None = None) -> None:
        self.busy_loop_s = spin_s
        if time.monotonic() <= self.last_read + ACTIVE_S:
            timeout_ms = LOOK_AGAIN_MS if timeout_ms is None else min(timeout_ms, LOOK_AGAIN_MS)
        wait(self, timeout_ms)

    def notify_surely(self: Any) -> None:
        # It makes the socket see that its last message has gone. Otherwise one sent within a millisecond of it is
        # dropped (`SNDHWM` is 1), and a reader sleeps on.
        self.local_notify_socket.getsockopt(zmq.EVENTS)
        notify(self)

    SpinCondition.wait, SpinCondition.notify = wait_asleep, notify_surely


def give_up_slow_grammars() -> None:
    """End the reply to a grammar that takes too long to follow (`vllm.v1.structured_output.backend_xgrammar`): one that
    is ambiguous takes longer from token to token, and its trial cannot foresee all that a model may write. Without it
    one request takes seconds of each step of all others."""
    from vllm.v1.structured_output.backend_xgrammar import XgrammarGrammar

    fill, accept = XgrammarGrammar.fill_bitmask, XgrammarGrammar.accept_tokens
    if fill.__name__ == "fill_timed":
        # vLLM calls a plugin more than once.
        return

    def fill_timed(self: Any, bitmask: Any, idx: int) -> None:
        began_s = time.thread_time()
        fill(self, bitmask, idx)
        self.followed_s = getattr(self, "followed_s", 0.0) + time.thread_time() - began_s

    def accept_timed(self: Any, request_id: str, tokens: list[int]) -> bool:
        spent_s = getattr(self, "followed_s", 0.0)
        if spent_s > FOLLOW_S + FOLLOW_TOKEN_S * self.num_processed_tokens:
            # The scheduler ends the request.
            return False
        began_s = time.thread_time()
        accepted = bool(accept(self, request_id, tokens))
        self.followed_s = spent_s + time.thread_time() - began_s
        return accepted

    XgrammarGrammar.fill_bitmask, XgrammarGrammar.accept_tokens = fill_timed, accept_timed
