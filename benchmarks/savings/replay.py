"""The same requests sent by every side in turns, so that whatever else the machine does meets all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

import aiohttp
import orjson

from benchmarks.load.loop import Target
from benchmarks.load.server import Server, new_key
from benchmarks.savings.reply import Reply, ask

# A project's default, which clients know nothing of; the first is what the others are compared with.
WHOLE = "whole"
SETTINGS: Mapping[str, Mapping[str, float] | None] = {
    WHOLE: None, "target_ratio 0.3": {"target_ratio": 0.3}, "keep 0.95": {"keep": 0.95}
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Session:
    """What each side was told, request by request. `group` is what sessions that resemble each other share."""

    group: str
    replies: Mapping[str, Sequence[Reply]]


def targets(server: Server) -> dict[str, Target]:
    """A key for each side in a workspace of its own, so that no side finds another's prompts in the engine's cache.

    Raises `CannotRun`.
    """
    found = {}
    for number, (side, setting) in enumerate(SETTINGS.items()):
        default = orjson.dumps(setting).decode() if setting else None
        found[side] = Target(server.url, new_key(server.folder, f"side-{number}", compression=default))
    return found


# The bodies of a session, request by request, for each side: alike, but for marks in the messages.
Bodies = Mapping[str, Sequence[bytes]]


async def replay(
    group: str, bodies: Bodies, sides: Mapping[str, aiohttp.ClientSession], *, first: int
) -> Session:
    """Every request by each side before the next request; the side that begins changes. Raises `Failed`."""
    names = list(sides)
    found: dict[str, list[Reply]] = {name: [] for name in names}
    for number in range(len(bodies[names[0]])):
        begin = (first + number) % len(names)
        for name in [*names[begin:], *names[:begin]]:
            found[name].append(await ask(sides[name], bodies[name][number]))
    return Session(group, found)


async def replay_all(
    sessions: Sequence[tuple[str, Bodies]], to: Mapping[str, Target], on_done: Callable[[], None]
) -> list[Session]:
    """Sessions as their group and bodies, one after the other, each on connections of its own: a server has several
    HTTP processes, and a connection stays with one. Raises `Failed`."""
    found = []
    for number, (group, bodies) in enumerate(sessions):
        async with AsyncExitStack() as until:
            sides = {name: await until.enter_async_context(target.session()) for name, target in to.items()}
            found.append(await replay(group, bodies, sides, first=number))
        on_done()
    return found
