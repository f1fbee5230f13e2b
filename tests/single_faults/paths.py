"""The paths whose steps fail: what is there before, what is done, and what must be true at the end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.serve.chat.test_compression import agent
from tests.serve.served import HI
from tests.single_faults.audit import Told, check_reply
from tests.single_faults.world import Round, Server

CONTEXT = "\n\n".join(
    [
        "The pump ships with a filter.",
        "Its colour is a matter of taste and of the season.",
        "The warranty ends after two years.",
        "Spare parts are listed below in the order of their use.",
    ]
)


async def _nothing(_: Server) -> None:
    """No more than a new project."""


def _no_rounds(_: Server) -> Sequence[Round]:
    return ()


@dataclass(frozen=True)
class Path_:
    """`prepare` is done once; `act` with a fault; `rounds` in the background from then on, each until it returns
    nothing that is left to do; `check` says what is wrong at rest."""

    name: str
    act: Callable[[Server], Awaitable[None]]
    check: Callable[[Server, Told], Awaitable[list[str]]]
    prepare: Callable[[Server], Awaitable[None]] = _nothing
    rounds: Callable[[Server], Sequence[Round]] = _no_rounds


def _asking(path: str, **body: Any) -> Callable[[Server], Awaitable[None]]:
    async def act(server: Server) -> None:
        await server.ask(path, body).run()

    return act


CHAT, COMPRESS = "/v1/chat/completions", "/v1/compress"
SQUEEZED = {"target_ratio": 0.3, "model": "lexical"}
PATHS = {
    path.name: path
    for path in (
        Path_("chat", _asking(CHAT, messages=HI, max_tokens=6), check_reply),
        Path_("stream", _asking(CHAT, messages=HI, max_tokens=6, stream=True), check_reply),
        Path_(
            "compressed chat",
            _asking(CHAT, messages=agent(), max_tokens=6, compression=SQUEEZED),
            check_reply,
        ),
        Path_(
            "compress",
            _asking(COMPRESS, query="When does the warranty end?", input=CONTEXT, model="lexical"),
            check_reply,
        ),
    )
}
