"""Work that may take minutes, in a thread with an event loop of its own: the one that answers requests is not held."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


async def apart(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """What `work` returns, or raises. When this is cancelled, so is the work, and nobody waits for its end: the thread
    does not keep the process alive."""
    loop, done = asyncio.new_event_loop(), Future[T]()
    # From now on it cannot be cancelled from outside: the work ends it.
    done.set_running_or_notify_cancel()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            try:
                done.set_result(runner.run(work()))
            except BaseException as error:
                done.set_exception(error)

    threading.Thread(target=run, name="ops-apart", daemon=True).start()
    try:
        return await asyncio.wrap_future(done)
    except asyncio.CancelledError:
        # It may have ended just now.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_cancel_all, loop)
        raise


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    for task in asyncio.all_tasks(loop):
        task.cancel()
