"""The paths whose steps fail: what is there before, what is done, and what must be true at the end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from billing.ledger.budget_settings import Budgets
from billing.ledger.budgets import FLEX
from billing.store.schema import workspaces
from billing.usage import now
from billing.webhooks.webhooks import Webhooks
from serve.money.ledger_setup import read_pepper
from tests.serve.batches.uploading import chat_line, jsonl, made
from tests.serve.chat.test_compression import agent
from tests.serve.compressing import CONTEXT, QUERY
from tests.serve.served import HI, MINIMUM_NANO_USD
from tests.single_faults.audit import (
    Told,
    check_archive,
    check_batch,
    check_deliveries,
    check_reply,
    nothing_else,
)
from tests.single_faults.world import PERSON, PROJECT, TAG, WORKSPACE, Round, Server, long_ago, tried

CHAT, COMPRESS = "/v1/chat/completions", "/v1/compress"
SQUEEZED = {"target_ratio": 0.3, "model": "lexical"}


async def _nothing(_: Server) -> None:
    """A new project is enough."""


def _no_rounds(_: Server) -> Sequence[Round]:
    return ()


@dataclass(frozen=True)
class Trodden:
    """A path: `prepare` is done once, `act` with a fault in it. `rounds` go on in the background after that, each until
    it returns nothing that is left to do; `check` says what is wrong at rest."""

    act: Callable[[Server], Awaitable[Any]]
    check: Callable[[Server, Told], Awaitable[list[str]]] = nothing_else
    prepare: Callable[[Server], Awaitable[None]] = _nothing
    rounds: Callable[[Server], Sequence[Round]] = _no_rounds


def _asking(path: str, **body: Any) -> Trodden:
    return Trodden(lambda server: server.ask(path, body).run(), check_reply)


async def _chat_in_an_outage(server: Server) -> None:
    """The ledger is away from the engine's first token to the end of the reply. Then the spool is replayed."""
    database = server.served.database
    server.engine.on_asked = lambda: setattr(database, "is_down", True)
    await server.ask(CHAT, {"messages": HI, "max_tokens": 6}).run()
    database.is_down = False
    await tried(server.served.ledger.replay_spool)


async def _make_batch(server: Server) -> None:
    labels: dict[str, Any] = {"user": PERSON, "metadata": {"tags": [TAG]}}
    await made(server.served, jsonl([chat_line(name, **labels) for name in ("first", "second")]))


async def _use_a_month(server: Server) -> None:
    """Events of two months that are over, and of this one, in the log."""
    for months in (3, 3, 2, 2, 0):
        await server.use(long_ago(months) if months else now())
    await server.upkeep()


async def _use_thrice(server: Server) -> None:
    for _ in range(3):
        await server.use(now())


async def _reach_a_limit(server: Server) -> None:
    """Half of it, of which a webhook is to hear."""
    served = server.served
    pepper = read_pepper(served.settings.state_dir)
    url = (server.folder.parent / "receiver").read_text()
    await Webhooks(served.database, pepper=pepper, actor="single faults").add(url)
    await server.use(now())
    spent = await server.read(
        lambda c: c.scalar(workspaces.select().with_only_columns(workspaces.c.posted_nano_usd))
    )
    await served.accounts.change_workspace(WORKSPACE, {"spend_limit_nano_usd": int(spent * 1.8)})
    await server.upkeep()


async def _spend_a_budget(server: Server) -> None:
    """For the chat as it is asked there is no room, and for the same as `flex` there is."""
    setting = Budgets(server.served.database, "single faults").set(
        "project", PROJECT, "total", MINIMUM_NANO_USD, now=now(), at_end=FLEX
    )
    await setting


async def _hear(server: Server) -> None:
    await tried(server.webhooks.watch.once)
    await tried(server.webhooks.dispatcher.once)


PATHS = {
    "chat": _asking(CHAT, messages=HI, max_tokens=6),
    "stream": _asking(CHAT, messages=HI, max_tokens=6, stream=True),
    "landed chat": replace(_asking(CHAT, messages=HI, max_tokens=4), prepare=_spend_a_budget),
    "compressed chat": _asking(CHAT, messages=agent(), max_tokens=6, compression=SQUEEZED),
    "compression": _asking(COMPRESS, query=QUERY, input=CONTEXT, model="lexical"),
    "chat in an outage": Trodden(_chat_in_an_outage, check_reply),
    "batch": Trodden(
        lambda server: tried(server.run_batches),
        check_batch,
        _make_batch,
        lambda server: [server.run_batches],
    ),
    "webhook": Trodden(
        _hear,
        check_deliveries,
        _reach_a_limit,
        lambda server: [server.webhooks.watch.once, server.deliver],
    ),
    "log": Trodden(lambda server: tried(server.sequencer.once), prepare=_use_thrice),
    "archive": Trodden(
        lambda server: tried(server.archive),
        check_archive,
        _use_a_month,
        lambda server: [server.archive],
    ),
}
