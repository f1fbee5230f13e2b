"""Pauses between starts of replicas that fail: Ray tries one that ran before again and again."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any

from serve.cluster.ray_insides.ray_serve import (
    failed_starts,
    note_begun_start,
    note_failed_starts,
    note_killed_starts,
)

# As many as Ray tries at once for a replica that never ran, before it gives it up.
AT_ONCE = 3
FIRST_PAUSE_S, LONGEST_PAUSE_S = 2.0, 60.0


def pause_s(failed: int) -> float:
    """Before the next start, after so many have failed in a row."""
    # 2 to the 10th is beyond the longest.
    return 0.0 if failed < AT_ONCE else min(FIRST_PAUSE_S * 2.0 ** min(failed - AT_ONCE, 10), LONGEST_PAUSE_S)


def paced(start: Callable[..., Awaitable[None]]) -> Any:
    """A deployment's constructor that begins after the pause; while it waits, it has nothing loaded."""

    @functools.wraps(start)
    async def paced_start(*arguments: Any, **named: Any) -> None:
        app, replica = own_names()
        # A process that runs out of memory, or crashes, says nothing.
        note_killed_starts(app)
        failed = failed_starts(app)
        await asyncio.sleep(pause_s(failed))
        note_begun_start(app, replica)
        try:
            await start(*arguments, **named)
        except Exception:
            note_failed_starts(app, failed + 1)
            raise
        finally:
            note_begun_start(app, replica, ended=True)
        if failed:
            note_failed_starts(app, 0)

    return paced_start


def own_names() -> tuple[str, str]:
    """Names at Ray Serve of the application whose replica this process is, and of the replica's actor."""
    from ray import serve

    context = serve.get_replica_context()
    return str(context.app_name), str(context.replica_id.to_full_id_str())
